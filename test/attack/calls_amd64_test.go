//go:build linux && amd64

package attack

import "golang.org/x/sys/unix"

const machine = unix.AUDIT_ARCH_X86_64

// oldCalls are those that only some machines have.
var oldCalls = []watchedCall{
	{unix.SYS_CREAT, "creat", 0, -1, 0},
	{unix.SYS_OPEN, "open", 0, 1, writing},
	{unix.SYS_UNLINK, "unlink", 0, -1, 0},
	{unix.SYS_RMDIR, "rmdir", 0, -1, 0},
	{unix.SYS_RENAME, "rename", 1, -1, 0},
	{unix.SYS_MKDIR, "mkdir", 0, -1, 0},
	{unix.SYS_LINK, "link", 1, -1, 0},
	{unix.SYS_SYMLINK, "symlink", 1, -1, 0},
	{unix.SYS_CHMOD, "chmod", 0, -1, 0},
	{unix.SYS_CHOWN, "chown", 0, -1, 0},
	{unix.SYS_LCHOWN, "lchown", 0, -1, 0},
	{unix.SYS_MKNOD, "mknod", 0, -1, 0},
	{unix.SYS_UTIME, "utime", 0, -1, 0},
	{unix.SYS_UTIMES, "utimes", 0, -1, 0},
}
