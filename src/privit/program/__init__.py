"""The program: what both parties compute, decided once from public facts; numpy only.

serve/ evaluates it, cost/ prices it.
"""
