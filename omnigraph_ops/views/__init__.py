"""Texts of plans and reports for people: terminal, approval, Markdown."""
