package sandboxes

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// services are sockets of services that do what they are asked to outside of any sandbox, and files
// with which users are known to the machine.
//
//rules:constant never changed after this line
var services = []string{
	"/run/docker.sock", "/var/run/docker.sock", "/run/podman", "/run/containerd", "/run/crio",
	"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/snapd.socket", "/run/snapd-snap.socket",
	"/run/libvirt", "/run/lxd", "/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket",
	"/run/nix/daemon-socket", "/nix/var/nix/daemon-socket", "/tmp/.X11-unix", "/tmp/.ICE-unix",
	"/run/user", "/run/screen", "/run/systemd/resolve/io.systemd.Resolve", "/run/systemd/io.systemd.Manager",
	"/etc/shadow", "/etc/gshadow",
}

// named are the sockets that variables of an environment name: agents of keys, editors, terminals.
func named(env []string) []string {
	var out []string
	for _, kv := range env {
		_, value, _ := strings.Cut(kv, "=")
		for _, path := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(",;:=", r) }) {
			if !filepath.IsAbs(path) {
				continue
			}
			if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
				out = append(out, filepath.Clean(path))
			}
		}
	}
	return out
}

// maxSockets bounds the sockets that are hidden one by one.
const maxSockets = 1000

// bound are the sockets below some folders that processes of this network have bound. Those of
// commands are not among them: their network is another one.
func bound(folders []string) ([]string, error) {
	f, err := os.Open("/proc/net/unix")
	if os.IsNotExist(err) {
		return nil, nil // a machine without a room
	}
	if err != nil {
		return nil, fmt.Errorf("look for sockets outside of the sandbox: %w", err)
	}
	defer f.Close()
	return parseSockets(f, folders)
}

func parseSockets(r io.Reader, folders []string) ([]string, error) {
	var out []string
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(out) < maxSockets {
		// Num RefCount Protocol Flags Type St Inode Path
		if _, path, ok := strings.Cut(lines.Text(), " /"); ok && within("/"+path, folders) {
			out = append(out, filepath.Clean("/"+path))
		}
	}
	return out, lines.Err()
}
