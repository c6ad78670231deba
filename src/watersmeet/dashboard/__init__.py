"""The dashboard: a page in the browser that shows a run while it goes on, the plan and why it won, and answers what-if
questions.

It listens on the loopback interface only, wants a token on every route, checks the Host header, sends a strict content
security policy, and offers nothing that runs code: a question is a list of numbers for controls it named itself.
"""
