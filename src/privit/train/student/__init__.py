"""The student: the teacher's network with switches at its sites."""
