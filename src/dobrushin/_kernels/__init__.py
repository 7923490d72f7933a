"""Compiled loops: arrays in, arrays out; no classes, no exceptions, no configuration."""
