package tty

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Size of a terminal in characters. The zero size means [Usual].
type Size struct{ Rows, Cols uint16 }

// Usual is the size of a terminal without a viewer.
func Usual() Size { return Size{Rows: 24, Cols: 80} }

// Open makes a pseudo-terminal. The master is served by the poller; the slave is
// what the command gets. A plain one ends its lines as files do, with a line feed
// alone: its output goes to no screen.
func Open(size Size, plain bool) (master, slave *os.File, err error) {
	fd, sfd, err := open()
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	master, slave = os.NewFile(uintptr(fd), "terminal"), os.NewFile(uintptr(sfd), "terminal")
	if err = prepare(sfd, plain); err == nil {
		err = SetSize(master, size)
	}
	if err != nil {
		_, _ = master.Close(), slave.Close()
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	return master, slave, nil
}

// prepare sets how a terminal behaves until its command says otherwise.
func prepare(fd int, plain bool) error {
	t, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return err
	}
	t.Iflag |= unix.IUTF8
	if plain {
		t.Oflag &^= unix.ONLCR
	}
	return unix.IoctlSetTermios(fd, setTermios, t)
}

// SetSize tells a terminal, and so its command, how large it is.
func SetSize(f *os.File, size Size) error {
	if size.Rows == 0 || size.Cols == 0 {
		size = Usual()
	}
	return control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// SizeOf returns the size of a person's terminal; the zero size for another file.
func SizeOf(f *os.File) (size Size) {
	_ = control(f, func(fd int) error {
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			size = Size{Rows: w.Row, Cols: w.Col}
		}
		return err
	})
	return size
}

// Raw hands every key of a person's terminal through as it is, until restore is
// called, which may be called again.
func Raw(f *os.File) (restore func(), err error) {
	var old *unix.Termios
	err = control(f, func(fd int) error {
		var err error
		if old, err = unix.IoctlGetTermios(fd, getTermios); err != nil {
			return err
		}
		raw := *old
		raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		raw.Oflag &^= unix.OPOST
		raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		return unix.IoctlSetTermios(fd, setTermios, &raw)
	})
	if err != nil {
		return nil, fmt.Errorf("set the terminal: %w", err)
	}
	return func() { _ = control(f, func(fd int) error { return unix.IoctlSetTermios(fd, setTermios, old) }) }, nil
}

// control leaves the descriptor as the poller has it.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := conn.Control(func(fd uintptr) { err = do(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}
