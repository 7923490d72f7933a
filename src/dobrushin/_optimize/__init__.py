"""Choosing scans. The certificate of a returned scan is computed afresh by the trusted code."""

from dobrushin._optimize.dogs import optimize_scan
from dobrushin._optimize.greedy import greedy_scan
from dobrushin._optimize.guide import ScanResult
from dobrushin._optimize.shortest import shortest_scan

__all__ = ["ScanResult", "greedy_scan", "optimize_scan", "shortest_scan"]
