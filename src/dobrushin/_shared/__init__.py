"""Helpers that every package uses: checks, arrays, files, seeds, executors. Nothing here knows models or scans."""
