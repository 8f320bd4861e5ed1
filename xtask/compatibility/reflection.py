"""Asks a service over gRPC reflection what it serves and makes a call with nothing but what it says, as grpcurl does.
Prints one JSON object for each check.

Argument: `host:port`."""

import json
import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def expect(holds, what):
    if not holds:
        raise AssertionError(str(what))


def checks(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)

    def services():
        found = set(database.get_services())
        expect({"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= found, found)

    def describe():
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        expect(len(service.methods) == 20, [method.name for method in service.methods])
        fields = pool.FindMessageTypeByName("inference.ModelInferRequest").fields_by_name
        expect(fields["raw_input_contents"].number == 7, "fields of a request")

    def invoke():
        request = GetMessageClass(pool.FindMessageTypeByName("inference.ModelInferRequest"))()
        request.model_name = "digits"
        tensor = request.inputs.add(name="pixels", datatype="FP32", shape=[1, 64])
        tensor.contents.fp32_contents.extend([2.0] * 64)
        answer = GetMessageClass(pool.FindMessageTypeByName("inference.ModelInferResponse"))
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        reply = call(request, timeout=60)
        expect(len(reply.outputs[0].contents.fp32_contents) == 10, reply)

    return [services, describe, invoke]


def main(address):
    channel = grpc.insecure_channel(address)
    for check in checks(channel):
        failure = None
        try:
            check()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        print(json.dumps({"call": check.__name__, "form": "reflection", "failure": failure}), flush=True)


main(sys.argv[1])
