"""The listener: what is asked, watches, faults and the record of requests."""
