"""Bridges to other libraries; each module imports its library when used."""
