"""What every room uses: checks, arrays, files, seeds, executors. Nothing here knows models or scans."""
