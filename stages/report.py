"""`report`: placeholder"""
