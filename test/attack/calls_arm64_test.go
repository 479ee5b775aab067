//go:build linux && arm64

package attack

import "golang.org/x/sys/unix"

const machine = unix.AUDIT_ARCH_AARCH64

// oldCalls are those that only some machines have.
var oldCalls []watchedCall
