"""``judgetrain serve``: one process that holds a judge and answers many clients over HTTP."""
