// Package userservice installs a program as a service of the user, which systemd or launchd
// starts when the user logs in, and again when it ends. It does not know the program.
package userservice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Service is a program that runs for a user.
type Service struct {
	Name        string // such as drover
	Description string
	Args        []string // the first is an absolute path
	Env         []string // KEY=value, in addition to the manager's
}

// Manager starts the services of one user.
type Manager struct {
	OS     string // as runtime.GOOS
	Home   string // absolute
	Config string // where the user has settings, such as ~/.config; absolute
	UID    int

	// Run runs a program and returns its stdout; an error has its stderr.
	Run func(ctx context.Context, name string, args ...string) (string, error)
}

// Status is the state of a service.
type Status struct {
	File      string `json:"file"`
	Installed bool   `json:"installed"`
	Active    bool   `json:"active"`
	Lingers   bool   `json:"lingers"` // it starts with the machine, not at the first login; systemd only
	Problem   string `json:"problem,omitempty"`
}

// File is the file that describes a service to the manager.
func (m Manager) File(name string) (string, error) {
	switch m.OS {
	case "linux":
		return filepath.Join(m.Config, "systemd", "user", name+".service"), nil
	case "darwin":
		return filepath.Join(m.Home, "Library", "LaunchAgents", label(name)+".plist"), nil
	}
	return "", fmt.Errorf("services of the user on %s: systemd and launchd are supported", m.OS)
}

// Install writes the file of a service and starts it, also if an earlier one runs. The file
// stays if the service cannot be started.
func (m Manager) Install(ctx context.Context, s Service) (string, error) {
	file, err := m.File(s.Name)
	if err != nil {
		return "", err
	}
	text, err := m.text(s)
	if err != nil {
		return "", fmt.Errorf("install service %s: %w", s.Name, err)
	}
	if err := write(file, text); err != nil {
		return "", fmt.Errorf("install service %s: %w", s.Name, err)
	}
	if m.OS == "darwin" {
		_, _ = m.Run(ctx, "launchctl", "bootout", m.domain()+"/"+label(s.Name)) // it may not be loaded
		_, err = m.Run(ctx, "launchctl", "bootstrap", m.domain(), file)
	} else {
		unit := s.Name + ".service"
		for _, args := range [][]string{{"daemon-reload"}, {"enable", unit}, {"restart", unit}} {
			if err == nil {
				_, err = m.Run(ctx, "systemctl", append([]string{"--user"}, args...)...)
			}
		}
	}
	if err != nil {
		return file, fmt.Errorf("start service %s: %w", s.Name, err)
	}
	return file, nil
}

// Uninstall stops a service and removes its file; it reports whether there was one.
func (m Manager) Uninstall(ctx context.Context, name string) (bool, error) {
	file, err := m.File(name)
	if err != nil {
		return false, err
	}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var stopped error
	if m.OS == "darwin" {
		_, stopped = m.Run(ctx, "launchctl", "bootout", m.domain()+"/"+label(name))
	} else {
		_, stopped = m.Run(ctx, "systemctl", "--user", "disable", "--now", name+".service")
	}
	if err := os.Remove(file); err != nil {
		return false, fmt.Errorf("uninstall service %s: %w", name, err)
	}
	if stopped == nil && m.OS != "darwin" {
		_, stopped = m.Run(ctx, "systemctl", "--user", "daemon-reload")
	}
	if stopped != nil {
		return true, fmt.Errorf("stop service %s: %w", name, stopped)
	}
	return true, nil
}

// Look returns the state of a service.
func (m Manager) Look(ctx context.Context, name string) (Status, error) {
	file, err := m.File(name)
	if err != nil {
		return Status{}, err
	}
	st := Status{File: file}
	_, err = os.Stat(file)
	st.Installed = err == nil
	if m.OS == "darwin" {
		_, err = m.Run(ctx, "launchctl", "print", m.domain()+"/"+label(name))
		st.Active = err == nil
		return st, nil
	}
	out, err := m.Run(ctx, "systemctl", "--user", "show", "--property=ActiveState", "--value", name+".service")
	if st.Active = strings.TrimSpace(out) == "active"; err != nil {
		st.Problem = err.Error()
	}
	out, err = m.Run(ctx, "loginctl", "show-user", "--property=Linger", "--value", fmt.Sprint(m.UID))
	st.Lingers = err == nil && strings.TrimSpace(out) == "yes"
	return st, nil
}

func (m Manager) domain() string { return fmt.Sprintf("gui/%d", m.UID) }

func label(name string) string { return "dev." + name }

// text is the file of a service.
func (m Manager) text(s Service) (string, error) {
	if len(s.Args) == 0 || !filepath.IsAbs(s.Args[0]) {
		return "", fmt.Errorf("the program %q is no absolute path", slices.Concat(s.Args, []string{""})[0])
	}
	for _, v := range slices.Concat(s.Args, s.Env, []string{s.Description}) {
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("%q has a control character", v)
		}
	}
	if m.OS == "darwin" {
		return launchd(s), nil
	}
	if strings.ContainsAny(s.Args[0], "'\"\\") {
		return "", fmt.Errorf("systemd starts no program whose path has a quote or a backslash: %s (move it)", s.Args[0])
	}
	return systemd(s), nil
}

// systemd returns a unit of systemd. A restart or a stop ends the program alone: its children are
// tasks of the user.
func systemd(s Service) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`)
	var b strings.Builder
	fmt.Fprintf(&b, "[Unit]\nDescription=%s\n\n[Service]\nExecStart=", strings.ReplaceAll(s.Description, "%", "%%"))
	for i, a := range s.Args {
		if i > 0 {
			b.WriteByte(' ')
			a = strings.ReplaceAll(a, "$", "$$") // in the path of the program it means itself
		}
		fmt.Fprintf(&b, `"%s"`, quote.Replace(a))
	}
	for _, kv := range s.Env {
		fmt.Fprintf(&b, "\nEnvironment=\"%s\"", quote.Replace(kv))
	}
	b.WriteString("\nRestart=always\nRestartSec=5\nKillMode=process\nOOMPolicy=continue\n\n" +
		"[Install]\nWantedBy=default.target\n")
	return b.String()
}

// launchd is a property list of launchd.
func launchd(s Service) string {
	var b strings.Builder
	put := func(format string, values ...string) {
		escaped := make([]any, len(values))
		for i, v := range values {
			escaped[i] = html.EscapeString(v)
		}
		fmt.Fprintf(&b, format, escaped...)
	}
	put(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" ` +
		`"http://www.apple.com/DTDs/PropertyList-1.0.dtd">` + "\n<plist version=\"1.0\">\n<dict>\n")
	put("\t<key>Label</key>\n\t<string>%s</string>\n", label(s.Name))
	put("\t<key>ProgramArguments</key>\n\t<array>\n")
	for _, a := range s.Args {
		put("\t\t<string>%s</string>\n", a)
	}
	put("\t</array>\n\t<key>EnvironmentVariables</key>\n\t<dict>\n")
	for _, kv := range s.Env {
		key, value, _ := strings.Cut(kv, "=")
		put("\t\t<key>%s</key>\n\t\t<string>%s</string>\n", key, value)
	}
	put("\t</dict>\n\t<key>RunAtLoad</key>\n\t<true/>\n\t<key>KeepAlive</key>\n\t<true/>\n" +
		"\t<key>AbandonProcessGroup</key>\n\t<true/>\n</dict>\n</plist>\n")
	return b.String()
}

// write replaces a file of the user's settings.
func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // as systemd makes it
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// commandWait limits each program that a [Command] runs.
const commandWait = 30 * time.Second

// Command runs programs in an environment, for [Manager.Run].
func Command(env []string) func(ctx context.Context, name string, args ...string) (string, error) {
	return func(ctx context.Context, name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, commandWait, fmt.Errorf("%s has run for %s", name, commandWait))
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env, cmd.WaitDelay = env, time.Second
		var out, problem bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &problem
		err := cmd.Run()
		switch said := excerpt.Line(problem.String(), 300); {
		case err == nil:
			return out.String(), nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case said != "":
			err = errors.New(said)
		}
		return out.String(), fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
}
