package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// outsideSockets are attempts to reach a Unix socket that was bound outside, in a folder that is not hidden. The
// target is a stream socket; a datagram socket and one for packets have names with an ending.
func outsideSockets() map[string]func(path string) error {
	socket := func(kind int) (int, error) { return unix.Socket(unix.AF_UNIX, kind, 0) }
	connect := func(kind int, path string) error {
		fd, err := socket(kind)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	return map[string]func(string) error{
		"connect":            func(path string) error { return connect(unix.SOCK_STREAM, path) },
		"packets":            func(path string) error { return connect(unix.SOCK_SEQPACKET, path+".packets") },
		"datagrams":          func(path string) error { return connect(unix.SOCK_DGRAM, path+".datagrams") },
		"raw":                func(path string) error { return connect(unix.SOCK_RAW, path+".datagrams") },
		"without blocking":   func(path string) error { return connect(unix.SOCK_STREAM|unix.SOCK_NONBLOCK, path) },
		"by /proc/self/root": func(path string) error { return connect(unix.SOCK_STREAM, "/proc/self/root"+path) },
		"by an inherited file": func(path string) error {
			return connect(unix.SOCK_STREAM, "/proc/self/fd/"+os.Getenv("INHERITED")+"/other/"+filepath.Base(path))
		},
		"by its folder": func(path string) error {
			if err := unix.Chdir(filepath.Dir(path)); err != nil {
				return err
			}
			return connect(unix.SOCK_STREAM, filepath.Base(path))
		},
		"by a symlink": func(path string) error {
			return errors.Join(os.Symlink(path, "sym"), connect(unix.SOCK_STREAM, "sym"))
		},
		"by a hard link": func(path string) error {
			return errors.Join(unix.Link(path, "hard"), connect(unix.SOCK_STREAM, "hard"))
		},
		"by a descriptor": func(path string) error {
			fd, err := unix.Open(path, unix.O_PATH, 0)
			if err != nil {
				return err
			}
			return connect(unix.SOCK_STREAM, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
		},
		"in a root of its own": func(path string) error {
			if err := unix.Chroot(filepath.Dir(path)); err != nil {
				return err
			}
			return connect(unix.SOCK_STREAM, "/"+filepath.Base(path))
		},
		"send datagrams": func(path string) error {
			fd, err := socket(unix.SOCK_DGRAM)
			if err != nil {
				return err
			}
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: path + ".datagrams"})
		},
		"datagrams of a pair": func(path string) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			return unix.Sendmsg(pair[0], []byte("x"), nil, &unix.SockaddrUnix{Name: path + ".datagrams"}, 0)
		},
		"send without a connection": func(path string) error {
			fd, err := socket(unix.SOCK_STREAM)
			if err != nil {
				return err
			}
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: path})
		},
		"in another thread": func(path string) error {
			done := make(chan error, 1)
			onThread(func() { done <- connect(unix.SOCK_STREAM, path) })
			return <-done
		},
		"in a child": func(path string) error {
			return exec.Command("python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])", path).Run()
		},
		"the name is exchanged": func(path string) error {
			return raced(func(own string) func() error {
				_ = os.Symlink(own, "a")
				_ = os.Symlink(path, "b")
				go func() {
					for {
						_ = unix.Renameat2(unix.AT_FDCWD, "a", unix.AT_FDCWD, "b", unix.RENAME_EXCHANGE)
					}
				}()
				return func() error { return connect(unix.SOCK_STREAM, "a") }
			})
		},
		"the address is exchanged": func(path string) error {
			return raced(func(own string) func() error {
				var address [110]byte
				address[0] = unix.AF_UNIX
				write := func(name string) { copy(address[2:], name+"\x00") }
				go func() {
					for {
						write(own)
						write(path)
					}
				}()
				return func() error {
					fd, err := socket(unix.SOCK_STREAM)
					if err != nil {
						return err
					}
					defer unix.Close(fd)
					_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address[0])), uintptr(len(address)))
					return made(errno)
				}
			})
		},
		"the socket is exchanged": func(path string) error {
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer tcp.Close()
			var unixes atomic.Int64
			target, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			go func() {
				for {
					if fd, err := socket(unix.SOCK_STREAM); err == nil {
						_ = unix.Dup2(fd, target)
						_ = unix.Close(fd)
						unixes.Add(1)
					}
					if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
						_ = unix.Dup2(fd, target)
						_ = unix.Close(fd)
					}
				}
			}()
			for range 300 {
				_ = unix.Connect(target, &unix.SockaddrUnix{Name: path})
			}
			return nil
		},
	}
}

// raced tries something many times while something else exchanges what it is about.
func raced(prepare func(own string) func() error) error {
	own := fmt.Sprintf("own%d", os.Getpid())
	l, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	try := prepare(own)
	for range 500 {
		_ = try()
	}
	return nil
}

// listenOutside listens at a path for streams, and beside it for packets and datagrams. reached reports whether
// somebody has come, and forgets it.
func listenOutside(path string) (reached func() bool, stop func(), err error) {
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, nil, err
	}
	packets, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path + ".packets", Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path + ".datagrams", Net: "unixgram"})
	if err != nil {
		return nil, nil, err
	}
	return func() (got bool) {
			for _, l := range []*net.UnixListener{stream, packets} {
				_ = l.SetDeadline(time.Now().Add(2 * time.Millisecond))
				for {
					c, err := l.Accept()
					if err != nil {
						break
					}
					got = true
					_ = c.Close()
				}
			}
			_ = datagrams.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
			for {
				if _, _, err := datagrams.ReadFrom(make([]byte, 10)); err != nil {
					return got
				}
				got = true
			}
		}, func() {
			for _, c := range []interface{ Close() error }{stream, packets, datagrams} {
				_ = c.Close()
			}
			_ = os.Remove(path + ".datagrams")
		}, nil
}

// ownSockets are what programs do with sockets of their own every day; it is tried in the sandbox and must work.
const ownSockets = `
import socket, os, threading, subprocess
def serve(kind, name):
    s = socket.socket(socket.AF_UNIX, kind); s.bind(name); s.listen(5)
    threading.Thread(target=lambda: [s.accept()[0].sendall(b"hello") for _ in range(3)], daemon=True).start()
def ask(kind, name):
    c = socket.socket(socket.AF_UNIX, kind); c.connect(name); assert c.recv(9) == b"hello"
for kind, name in (socket.SOCK_STREAM, "own.sock"), (socket.SOCK_SEQPACKET, "own.packets"), (socket.SOCK_STREAM, "\0own"):
    serve(kind, name); ask(kind, name)
ask(socket.SOCK_STREAM, os.path.abspath("own.sock"))
os.symlink("own.sock", "own.link"); ask(socket.SOCK_STREAM, "own.link")
a, b = socket.socketpair(); a.sendall(b"x"); assert b.recv(1) == b"x"
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(5)
socket.create_connection(l.getsockname()).close()
for name, want in ("/nowhere", FileNotFoundError), (os.__file__, ConnectionRefusedError):
    try: ask(socket.SOCK_STREAM, name)
    except want: continue
    assert False, name
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)
child = subprocess.Popen(["sleep", "9"])
os.sched_setaffinity(child.pid, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, child.pid, 19)
child.kill()
os.chmod("own.link", 0o1755)
print("all works")
`
