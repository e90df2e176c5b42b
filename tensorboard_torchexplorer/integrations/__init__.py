"""Callbacks for trainers, one module for each library, which need not be installed for the others."""
