# SPDX-License-Identifier: Apache-2.0

"""A library that consists of flags for the linker.

A cc_library in another repository would add a folder for headers to the command
that compiles each file that depends on it. This one changes no such command, so
Bazel need not compile anything again when --config=portable comes or goes.
"""

def _link_flags_impl(ctx):
    return [CcInfo(linking_context = cc_common.create_linking_context(
        linker_inputs = depset([cc_common.create_linker_input(
            owner = ctx.label,
            user_link_flags = depset(ctx.attr.flags),
        )]),
    ))]

link_flags = rule(
    implementation = _link_flags_impl,
    attrs = {"flags": attr.string_list(mandatory = True)},
    provides = [CcInfo],
)
