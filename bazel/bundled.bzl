# SPDX-License-Identifier: Apache-2.0

"""Local definitions of repositories that Bazel would otherwise download.

Bazel 4 requires these three repositories for every C++ build and test, and
downloads them unless the WORKSPACE defines them first. Debian's Bazel package
contains everything that they provide (the native rules), so a few lines each
suffice and the build needs no network.
"""

_NATIVE_RULES = """\"\"\"The native rules under the names of {repository}.\"\"\"

{assignments}
"""

def _native_rules_impl(ctx):
    ctx.file("BUILD", "")
    ctx.file(ctx.attr.language + "/BUILD", "")
    ctx.file(ctx.attr.language + "/defs.bzl", _NATIVE_RULES.format(
        repository = ctx.name,
        assignments = "\n".join(["%s = native.%s" % (r, r) for r in ctx.attr.rules]),
    ))

_native_rules = repository_rule(
    implementation = _native_rules_impl,
    attrs = {
        "language": attr.string(mandatory = True),
        "rules": attr.string_list(mandatory = True),
    },
    local = True,
)

# Coverage reports are not supported; tests only need the labels to exist.
_COVERAGE_BUILD = """package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator")

filegroup(name = "lcov_merger")

filegroup(name = "coverage_output_generator")
"""

def _coverage_tools_impl(ctx):
    ctx.file("BUILD", _COVERAGE_BUILD)

_coverage_tools = repository_rule(
    implementation = _coverage_tools_impl,
    local = True,
)

def bundled_repositories():
    """Defines rules_cc, rules_java and remote_coverage_tools without a download."""
    _native_rules(
        name = "rules_cc",
        language = "cc",
        rules = [
            "cc_binary",
            "cc_import",
            "cc_library",
            "cc_proto_library",
            "cc_test",
            "cc_toolchain",
            "cc_toolchain_suite",
            "objc_import",
            "objc_library",
        ],
    )
    _native_rules(
        name = "rules_java",
        language = "java",
        rules = [
            "java_binary",
            "java_import",
            "java_library",
            "java_package_configuration",
            "java_plugin",
            "java_proto_library",
            "java_runtime",
            "java_test",
            "java_toolchain",
        ],
    )
    _coverage_tools(name = "remote_coverage_tools")
