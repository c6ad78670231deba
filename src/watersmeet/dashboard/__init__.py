"""The dashboard: a page in the browser that shows a running query, its plan and the plans that lost.

It also answers what-if questions. The server listens on the loopback interface only, requires a token on every route,
checks the Host header and sends a strict content security policy. It runs no code from the page: a question is a number
for each control that the server defined.
"""

from watersmeet.extras import DASHBOARD, require_extra

require_extra(DASHBOARD)
