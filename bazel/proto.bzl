# SPDX-License-Identifier: Apache-2.0

"""holdfast_proto_library: C++ code for .proto files by the system's protoc."""

def _sources_label(label):
    """//proto:tensor -> //proto:tensor_proto_srcs; //proto -> //proto:proto_..."""
    if ":" not in label:
        label = label + ":" + label.split("/")[-1]
    return label + "_proto_srcs"

# Generated headers become system headers, so that the project's warnings do not
# apply to protoc's code.
_GENERATE = """
$(location @system//:protoc) --proto_path=. --proto_path=$(GENDIR) --proto_path=/usr/include \
    {flags} {sources}
sed -i '1i #pragma GCC system_header' {headers}
"""

_GENERATED_COPTS = ["-w"]

def _generate(name, srcs, protos, suffix, flags, tools, **kwargs):
    stems = [src[:-len(".proto")] for src in srcs]
    headers = [stem + suffix + ".h" for stem in stems]
    sources = [stem + suffix + ".cc" for stem in stems]
    native.genrule(
        name = name,
        srcs = srcs + protos,
        outs = headers + sources,
        cmd = _GENERATE.format(
            flags = flags,
            sources = " ".join(["$(location %s)" % src for src in srcs]),
            headers = " ".join(["$(location %s)" % header for header in headers]),
        ),
        tools = ["@system//:protoc"] + tools,
        message = "Generating C++ for",
        visibility = ["//visibility:private"],
        **kwargs
    )
    return headers, sources

def holdfast_proto_library(name, srcs, deps = [], grpc = False, visibility = None, testonly = None):
    """C++ libraries for .proto files.

    Messages:  <name>, included as "proto/x.pb.h" (the path in the tree).
    Services:  <name>_grpc with "proto/x.grpc.pb.h", if `grpc`; a target of its
               own, so that users of the messages alone do not link gRPC.

    Args:
      name: of the library.
      srcs: .proto files of this package. They import one another and those of
        `deps` by their path in the tree ("proto/x.proto"); google/protobuf/*
        need no dependency.
      deps: other holdfast_proto_library targets.
      grpc: whether to generate the services too.
      visibility: of all targets.
      testonly: of all targets.
    """
    protos = [_sources_label(dep) for dep in deps]
    native.filegroup(
        name = name + "_proto_srcs",
        srcs = srcs + protos,
        testonly = testonly,
        visibility = visibility,
    )

    headers, sources = _generate(
        name = name + "_pb_gen",
        srcs = srcs,
        protos = protos,
        suffix = ".pb",
        flags = "--cpp_out=$(GENDIR)",
        tools = [],
        testonly = testonly,
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = _GENERATED_COPTS,
        linkstatic = True,
        testonly = testonly,
        visibility = visibility,
        deps = deps + ["@system//:protobuf"],
    )

    if grpc:
        headers, sources = _generate(
            name = name + "_grpc_gen",
            srcs = srcs,
            protos = protos,
            suffix = ".grpc.pb",
            flags = "--plugin=protoc-gen-grpc=$(location @system//:grpc_cpp_plugin) " +
                    "--grpc_out=$(GENDIR)",
            tools = ["@system//:grpc_cpp_plugin"],
            testonly = testonly,
        )
        native.cc_library(
            name = name + "_grpc",
            srcs = sources,
            hdrs = headers,
            copts = _GENERATED_COPTS,
            linkstatic = True,
            testonly = testonly,
            visibility = visibility,
            deps = [":" + name, "@system//:grpc++"],
        )
