package tty

import (
	"bytes"
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)

func open() (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	var name [128]byte // as long as the request says
	for _, c := range []struct {
		request uint
		arg     unsafe.Pointer
	}{{unix.TIOCPTYGRANT, nil}, {unix.TIOCPTYUNLK, nil}, {unix.TIOCPTYGNAME, unsafe.Pointer(&name[0])}} {
		if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, uintptr(master), uintptr(c.request), uintptr(c.arg)); no != 0 {
			return 0, 0, errors.Join(no, unix.Close(master))
		}
	}
	path, _, _ := bytes.Cut(name[:], []byte{0})
	slave, err = unix.Open(string(path), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, errors.Join(err, unix.Close(master))
	}
	return master, slave, nil
}
