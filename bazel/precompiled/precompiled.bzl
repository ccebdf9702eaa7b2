# SPDX-License-Identifier: Apache-2.0

"""Precompiled headers: what most files include, parsed once instead of a thousand times.

Parsing takes more than half of the time that it takes to compile Holdfast. Targets of cc.bzl
that have no copts of their own include one of the headers of this package before anything else;
the compiler then reads its state after that header from a file. No source may rely on it:
clang-tidy, programs that are built with the SDK, and

    bazel build --config=plain //...

compile without it, and fail if an #include is missing.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    needed = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context

    # The compiler looks for X.h.gch wherever it looks for X.h, which it reads itself if it cannot
    # use the other.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    precompiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                             ctx.attr.copts + ["-x", "c++-header"],
        source_file = ctx.file.header.path,
        output_file = precompiled.path,
        quote_include_directories = needed.quote_includes,
        include_directories = needed.includes,
        system_include_directories = needed.system_includes,
        preprocessor_defines = needed.defines,
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
            variables = variables,
        ),
        inputs = depset(
            [ctx.file.header] + ctx.files.srcs,
            transitive = [needed.headers, toolchain.all_files],
        ),
        outputs = [precompiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.file.header.short_path,
    )
    context = cc_common.create_compilation_context(
        headers = depset([header, precompiled, ctx.file.header] + ctx.files.srcs),
    )
    return [
        DefaultInfo(files = depset([precompiled])),
        # Headers alone: what a target links is for its own deps to say.
        cc_common.merge_cc_infos(cc_infos = [
            CcInfo(compilation_context = context),
            CcInfo(compilation_context = needed),
        ]),
    ]

precompiled_header = rule(
    doc = """A header, precompiled, as <name>.h in this package's folder of outputs.

    A target that depends on this, and includes that file before anything else by the flag
    -include, must be compiled with the same copts where they change code.""",
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(mandatory = True, allow_single_file = [".h"]),
        "srcs": attr.label_list(allow_files = [".h"], doc = "Headers that it includes."),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
