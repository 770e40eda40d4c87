"""Does the soak find faults that are planted on purpose?"""
