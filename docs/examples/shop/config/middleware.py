"""Every job that a request enqueues carries the id of the request."""

import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from queuey_sync import correlated


class RequestId:
    """Takes the id from the proxy, or makes one, and gives it back in the response."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Handle one request."""
        request_id = request.headers.get("X-Request-ID") or uuid.uuid4().hex
        with correlated(request_id):
            response = self.get_response(request)
        response["X-Request-ID"] = request_id
        return response
