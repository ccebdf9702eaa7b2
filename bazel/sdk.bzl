# SPDX-License-Identifier: Apache-2.0

"""Packs a library of Holdfast for programs that are built without Bazel.

    load("//bazel:sdk.bzl", "cc_sdk")
    cc_sdk(name = "sdk", library = ":worker_main")

makes sdk.tar with

    include/                   Holdfast's headers that users of the library may include
    lib/lib<name>.a            Holdfast's object files
    lib/lib<name>_whole.a      object files that are linked even if unused,
                               if there are any
    lib/pkgconfig/<name>.pc    flags to compile and link with them and with the
                               system's libraries, which are not packed

<name> is the attribute `package`.
"""

def _cc_sdk_impl(ctx):
    context = ctx.attr.library[CcInfo]
    headers = [
        header
        for header in context.compilation_context.headers.to_list()
        # Those of bazel/precompiled/ are for the build of Holdfast itself.
        if header.owner.workspace_name == "" and not header.short_path.startswith("bazel/")
    ]
    archives = []
    whole = []
    flags = []
    for linker_input in context.linking_context.linker_inputs.to_list():
        for flag in linker_input.user_link_flags:
            if flag not in flags:
                flags.append(flag)
        for library in linker_input.libraries:
            archive = library.pic_static_library or library.static_library
            (whole if library.alwayslink else archives).append(archive)

    tar = ctx.actions.declare_file(ctx.label.name + ".tar")
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest")
    ctx.actions.write(manifest, "\n".join(
        ["package " + ctx.attr.package] +
        ["flag " + flag for flag in flags] +
        # Generated headers have another root than the sources.
        ["header %s %s" % (header.short_path, header.path) for header in headers] +
        ["archive " + archive.path for archive in archives] +
        ["whole " + archive.path for archive in whole],
    ) + "\n")
    ctx.actions.run(
        executable = ctx.executable._pack,
        arguments = [manifest.path, tar.path],
        inputs = headers + archives + whole + [manifest],
        outputs = [tar],
        mnemonic = "CcSdk",
        progress_message = "Packing %s" % ctx.label,
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([tar]), runfiles = ctx.runfiles(files = [tar]))]

cc_sdk = rule(
    implementation = _cc_sdk_impl,
    attrs = {
        "library": attr.label(mandatory = True, providers = [CcInfo]),
        "package": attr.string(mandatory = True),
        "_pack": attr.label(
            default = "//bazel:pack_sdk",
            executable = True,
            cfg = "exec",
        ),
    },
)
