"""Place an order, and look whether its receipt was sent."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from queuey_sync.contrib.django import enqueue_on_commit

from .jobs import SendReceipt
from .models import Order


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """The order and its job: both, or neither."""
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"], item=request.POST["item"])
        job_id = enqueue_on_commit(SendReceipt(order=order.pk))
    return JsonResponse({"order": order.pk, "job": str(job_id)}, status=201)


@require_GET
def show_order(_request: HttpRequest, number: int) -> JsonResponse:
    """An order, and the job that sent its receipt."""
    order = get_object_or_404(Order, pk=number)
    receipt = getattr(order, "receipt", None)
    return JsonResponse({"item": order.item, "receipt": receipt and str(receipt.job_id)})
