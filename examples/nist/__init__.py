"""NIST's certified nonlinear-regression problems, fitted with exact derivatives."""
