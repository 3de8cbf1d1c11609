"""Stands in for the package of the orchestrator that jorc replaces."""
