"""Do single steps of healthy levers pass the gate that they are held against, and those of faults not?"""
