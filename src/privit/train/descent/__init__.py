"""The search's descent: penalties, cuts, and what a cost budget can pay."""
