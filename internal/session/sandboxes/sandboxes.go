// Package sandboxes bounds the commands that models start in a session.
//
// [Sandboxes] owns the room of the session, the namespaces that all its commands share, and the
// proxy that is their only way to other machines. Both are opened before the first command. It
// decides from the settings and from the folders of an agent which files a command may write or not
// read, and which bounds hold on this machine.
//
// A mode of "best" takes what the machine has, and the record of each command says what that is.
// "required" refuses a start where a bound does not hold. A bound that held for one command of a
// session is never left out for a later one without an error.
//
// The package starts nothing and asks nothing.
package sandboxes

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/drover-dev/drover/internal/engine/netproxy"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/sandbox"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/task"
)

// Mode says whether commands are bounded.
type Mode string

// The modes. The empty one is Off.
const (
	Off      Mode = "off"
	Best     Mode = "best"     // by what the machine has
	Required Mode = "required" // by everything, or not started
)

func (m Mode) rank() int {
	switch m {
	case Best:
		return 1
	case Required:
		return 2
	}
	return 0
}

// Stricter returns the mode that bounds more.
func Stricter(a, b Mode) Mode {
	if a.rank() >= b.rank() {
		return a
	}
	return b
}

// Config configures the sandboxes of a session.
type Config struct {
	Mode    Mode
	Auto    bool     // commands need no rule where all bounds hold
	Starter []string // starts this program as the starter of a room
	Env     []string // of the starter: variables by which it is found as a process of the session

	Home    string   // of the user; empty: unknown
	TempDir string   // of the user, in addition to /tmp; empty: none
	Write   []string // further folders that commands may write
	Hidden  []string // further files and folders that they cannot read
	Shown   []string // folders below hidden ones that they can read
	Open    []string // files and folders that are not hidden, with all below them
	Caches  string   // folder of the project for what commands write into caches of the user; empty: they cannot
	Scratch string   // folder of the session that they can write; empty: none

	// Denied returns what deny rules keep from commands in the folder of the session and in copies of it, and what they
	// deny without being followed; see [policy.Gate.Denied]. nil: nothing.
	Denied func(copies []policy.Copy) (paths, notes []string)

	// Outside are names of commands that are not bounded, as [Wish] has them; a * at the end is any text.
	Outside []string
	Sockets []string       // Unix sockets of the machine that commands reach
	Domains []string       // hosts that commands reach unasked; see [netproxy.Rules]
	Local   map[int]string // as in [Profile]

	Credentials  []Credential   // that the proxy adds; their hosts are reached unasked
	Certificates string         // file of the certificates that the user trusts; empty: those of the machine
	Roots        *x509.CertPool // by which the hosts of credentials are checked; nil: those of the system

	// Upstream returns the proxy of the user through which other hosts are reached; see [netproxy.Config].
	Upstream func(to *url.URL) (*url.URL, error)

	// Report tells the user what does not hold; at most once for each text.
	Report func(text string)
	// Offer is what to use of the machine; nil: [sandbox.Probe].
	Offer func() sandbox.Offer
}

// Sandboxes are the sandboxes of a session. Its methods may be called by several goroutines. A nil
// Sandboxes bounds nothing.
type Sandboxes struct {
	cfg   Config
	offer func() sandbox.Offer
	temp  []string // folders of the machine that all commands may write
	// shared are all such folders, as they are when the first one starts.
	shared func() []found

	mu      sync.Mutex
	own     map[string]*Sandboxes // of profiles, by name
	room    *sandbox.Room         // nil: not open
	why     error                 // why the room is not open
	net     *network              // nil: not open
	tried   bool
	caches  []string // variables that name caches of the project; set with room
	written []found  // caches that commands of the room write aside; set with room
	upper   upper    // for written caches
	closed  bool
	below   map[string]nested   // protected files in folders and in repositories below
	was     map[string]tops     // of folders, as they were looked at last
	config  map[string]obeying  // of repositories and checkouts, see [Sandboxes.configured]
	absent  map[string][]string // of repositories, see [absentOf]
	copies  []policy.Copy       // of the folder of the session, in which commands run
	denied  []string            // what commands of the room cannot read by deny rules

	reading sync.Mutex                   // held during a look into a repository
	trees   map[string]map[string]listed // folders of repositories, by name; guarded by reading

	relied   atomic.Bool // commands were allowed because everything is bounded
	forwards forwards
}

// New returns the sandboxes of a session. It opens nothing.
func New(c Config) *Sandboxes {
	probe := c.Offer
	if probe == nil {
		probe = sandbox.Probe
	}
	s := &Sandboxes{cfg: c, offer: sync.OnceValue(probe), temp: []string{"/tmp", "/var/tmp"}}
	s.shared = sync.OnceValue(s.findShared)
	return s
}

// Profile is the needs of a program beyond the commands of a session.
type Profile struct {
	Name  string   // equal ones have one room
	Own   []string // files and folders that it reads and writes, although they are hidden from others
	Hosts []string // that it reaches unasked
	// Local are loopback addresses of this machine, by port, that it reaches at that port of its own, such as a gateway
	// to models.
	Local map[int]string
}

// Profile returns the sandboxes of programs with a profile, which have a room of their own. They
// are closed with s.
func (s *Sandboxes) Profile(p Profile) *Sandboxes {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.own[p.Name]; got != nil {
		return got
	}
	c := s.cfg
	c.Write = slices.Concat(c.Write, p.Own)
	c.Shown = slices.Concat(c.Shown, p.Own)
	c.Open = slices.Concat(c.Open, p.Own)
	c.Domains = slices.Concat(c.Domains, p.Hosts)
	c.Local = p.Local
	c.Offer = s.offer
	got := New(c)
	if s.own == nil {
		s.own = map[string]*Sandboxes{}
	}
	s.own[p.Name], got.closed, got.copies = got, s.closed, slices.Clone(s.copies)
	return got
}

// Copied has deny rules hold in copies of the folder of the session too, for all commands that start from now on.
func (s *Sandboxes) Copied(copies []policy.Copy) {
	if s == nil || len(copies) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies = append(s.copies, copies...)
	if s.tried {
		s.deny()
	}
	for _, p := range s.own {
		p.Copied(copies)
	}
}

// openVault opens what adds credentials; nil: the settings name none.
func (s *Sandboxes) openVault() (*vault, error) {
	if len(s.cfg.Credentials) == 0 {
		return nil, nil //nolint:nilnil // nothing is added
	}
	if s.cfg.Scratch == "" {
		return nil, errors.New("setting sandbox.credentials: a sandbox outside of a session has no folder for certificates")
	}
	machine, err := machineCertificates(s.cfg.Certificates)
	if err != nil {
		return nil, err
	}
	v, err := openVault(s.cfg.Credentials, s.cfg.Scratch, machine)
	if err == nil {
		v.roots = s.cfg.Roots
	}
	return v, err
}

// deny looks for the files of deny rules. The caller holds mu.
func (s *Sandboxes) deny() {
	if s.cfg.Denied == nil {
		return
	}
	paths, notes := s.cfg.Denied(s.copies)
	for _, p := range paths {
		if !slices.Contains(s.denied, p) { // what was denied stays denied: the file may be on its way back
			s.denied = append(s.denied, p)
		}
	}
	for _, note := range notes {
		s.report(note)
	}
}

// Wish is a command that is to be started.
type Wish struct {
	Folders []string // in which it works, and may write
	Line    string   // for people who are asked about it
	Name    string   // of a hook or server, by which the settings may let it run outside; empty: none
	Mode    Mode     // at least; empty: the mode of the session
	Opens   []string // protected files that somebody has allowed it to write; absolute
	Reach   Reach    // nil: it reaches the hosts that the settings name
	Tell    bool     // the user reads of hosts that it does not reach
}

// Start is how a command starts.
type Start struct {
	Fork sandbox.Forker // nil: plainly
	Held *task.Sandbox  // nil: no sandbox

	vars []string // which replace others of their names
	net  *client  // nil: it has no proxy

	// Made names the files that were made or changed in the folders since the command began, and other programs obey, with
	// these programs. It is called when the command has ended. nil: no sandbox.
	Made func() []string
}

// Refused returns why the command was not let through to hosts so far.
func (s Start) Refused() []string {
	if s.net == nil {
		return nil
	}
	return s.net.Refused()
}

// Environ is the environment of the command, made of its environment without a sandbox.
func (s Start) Environ(env []string) []string {
	if len(s.vars) == 0 {
		return env
	}
	kept := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(s.vars, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	return append(kept, s.vars...)
}

// Apply makes a command start so.
func (s Start) Apply(c *process.Command) {
	c.Fork, c.Env = s.Fork, s.Environ(c.Env)
}

// Command returns how a command starts. The first one opens the room.
func (s *Sandboxes) Command(w Wish) (Start, error) {
	if !s.On(w.Mode) || s.Outside(w.Name) {
		return Start{}, nil
	}
	mode := Stricter(s.cfg.Mode, w.Mode)
	room, way, err := s.open()
	if err != nil {
		return Start{}, err
	}
	b := s.bounds(w.Folders)
	b.Denied = s.deniedNow()
	if way.vault != nil {
		b.Fixed = append(b.Fixed, way.vault.file)
	}
	b.Fixed, b.Open = apart(b.Fixed, w.Opens)
	b.Ports = append(b.Ports, uint16(way.port))
	for port := range s.cfg.Local {
		b.Ports = append(b.Ports, uint16(port))
	}
	fork, held, err := sandbox.In(room, s.offer(), b.Bounds)
	if err == nil {
		err = s.enough(mode, held)
	}
	if errors.Is(err, sandbox.ErrUnsupported) && mode != Required && !s.relied.Load() {
		s.report("commands run without a sandbox: " + err.Error())
		return Start{Held: &task.Sandbox{}}, nil
	}
	if errors.Is(err, sandbox.ErrUnsupported) && mode == Required {
		err = fmt.Errorf("%w (with the setting sandbox.mode best commands start without it)", err)
	}
	if err != nil {
		return Start{}, fmt.Errorf("start in the sandbox: %w", err)
	}
	if w.Reach == nil {
		w.Reach = unattended
	}
	c, vars := way.join(w.Line, w.Reach)
	vars = append(vars, s.caches...)
	if w.Tell {
		c.tell = func(why string) { s.report("the sandbox: " + why) }
	}
	l := &look{s: s, folders: w.Folders, gits: b.gits, allowed: w.Opens}
	fork = s.watched(room, fork)
	begin := func(path string, args []string, attr *syscall.ProcAttr) (int, int, error) {
		l.begin()
		return fork(path, args, attr)
	}
	return Start{Fork: begin, Held: &held, vars: vars, net: c, Made: l.made}, nil
}

// watched forgets a room whose starter is gone, so that the next command gets another one. The
// one that met it is not started outside.
func (s *Sandboxes) watched(room *sandbox.Room, fork sandbox.Forker) sandbox.Forker {
	if room == nil {
		return fork
	}
	return sandbox.Lost(fork, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.room == room {
			s.shut()
			s.tried = false
		}
	})
}

// enough is an error where a bound does not hold that must.
func (s *Sandboxes) enough(mode Mode, held task.Sandbox) error {
	missing := held.Missing()
	if len(missing) == 0 || mode != Required && !s.relied.Load() {
		return nil
	}
	why := ""
	if s.why != nil {
		why = " (" + sandbox.Explain(s.why) + ")"
	}
	if mode != Required {
		return fmt.Errorf("commands of this session were allowed because everything is bounded, and these bounds no longer "+
			"hold: %s%s (see `drover doctor sandbox`, and open the session again)", strings.Join(missing, ", "), why)
	}
	return fmt.Errorf("the sandbox is required, and these bounds do not hold here: %s%s (see `drover doctor sandbox`; with the "+
		"setting sandbox.mode best commands start with what holds)",
		strings.Join(missing, ", "), why)
}

// open returns the room, nil on a machine without one, and the way out of it.
func (s *Sandboxes) open() (*sandbox.Room, *network, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, sandbox.ErrClosed
	}
	if s.tried {
		return s.room, s.net, nil
	}
	domains := slices.Clone(s.cfg.Domains)
	for _, c := range s.cfg.Credentials {
		domains = append(domains, c.Hosts...)
	}
	rules, err := netproxy.ParseRules(domains)
	if err != nil {
		return nil, nil, fmt.Errorf("setting sandbox.domains: %w", err)
	}
	v, err := s.openVault()
	if err != nil {
		return nil, nil, err
	}
	var overlays []sandbox.Overlay
	if s.cfg.Caches != "" {
		if s.upper, err = takeUpper(s.cfg.Caches); err == nil {
			overlays = s.overlays(s.upper)
		} else {
			s.report("commands read caches of yours and cannot write them: " + err.Error())
		}
	}
	room, err := sandbox.OpenRoom(sandbox.RoomConfig{
		Starter: s.cfg.Starter, Env: s.cfg.Env, Hidden: s.hidden(), Shown: s.cfg.Shown,
		Reached: s.cfg.Sockets, Overlays: overlays, Offer: s.offer(),
	})
	s.room, s.why = room, err
	s.caches, s.written = s.cachesOf(room)
	if err != nil {
		s.report("the sandbox holds in part: " + sandbox.Explain(err) + "; it does not bound secrets, protected files and all of the network")
	}
	if s.net, err = openNetwork(room, rules, s.cfg.Local, v, s.cfg.Upstream, s.report); err != nil {
		s.shut()
		return nil, nil, err
	}
	s.deny()
	s.tried = true
	return s.room, s.net, nil
}

func (s *Sandboxes) deniedNow() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.denied
}

// shut closes the room and the network. The caller holds mu.
func (s *Sandboxes) shut() {
	if s.net != nil {
		s.net.close()
		if v := s.net.vault; v != nil {
			for _, line := range v.uses() {
				s.report(line)
			}
		}
	}
	if s.room != nil {
		s.room.Close()
	}
	if s.upper.lock != nil {
		_ = s.upper.lock.Close()
	}
	s.net, s.room, s.upper = nil, nil, upper{}
}

func (s *Sandboxes) report(text string) {
	if s.cfg.Report != nil {
		s.cfg.Report(text)
	}
}

// Bounds returns what bounds commands, for decisions on them. The first call opens the room. Once the bounds were
// whole, a command that would have less does not start: it may have been allowed for their sake. mode is as in [Wish].
func (s *Sandboxes) Bounds(mode Mode) policy.Bounds {
	if !s.Trusts(mode) || !s.Whole(mode) {
		return policy.Bounds{}
	}
	s.relied.Store(true)
	return policy.Bounds{Whole: true, Hides: s.cfg.Denied != nil}
}

// Trusts reports whether the user lets commands of which everything is bounded run without a rule.
func (s *Sandboxes) Trusts(mode Mode) bool { return s.On(mode) && s.cfg.Auto }

// Whole reports whether everything that commands do is bounded on this machine. It opens the room.
func (s *Sandboxes) Whole(mode Mode) bool {
	if !s.On(mode) {
		return false
	}
	room, _, err := s.open()
	if err != nil || room == nil {
		return false
	}
	_, held, err := sandbox.In(room, s.offer(), sandbox.Bounds{})
	return err == nil && len(held.Missing()) == 0
}

// Outside reports whether the settings let a hook or server run outside.
func (s *Sandboxes) Outside(name string) bool {
	return s != nil && name != "" && slices.ContainsFunc(s.cfg.Outside, func(p string) bool { return covers(p, name) })
}

// covers reports whether a pattern, which may end in * for any text, covers a name.
func covers(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// Holds returns what holds for a hook or server of a project; nil: it runs outside. It opens the
// room.
func (s *Sandboxes) Holds(name string) *task.Sandbox {
	if !s.On("") || s.Outside(name) {
		return nil
	}
	room, _, err := s.open()
	if err != nil {
		return &task.Sandbox{}
	}
	_, held, _ := sandbox.In(room, s.offer(), sandbox.Bounds{}) // nothing holds where there is an error
	return &held
}

// Requires reports whether commands must not start without bounds. mode is as in [Wish].
func (s *Sandboxes) Requires(mode Mode) bool {
	return s != nil && Stricter(s.cfg.Mode, mode) == Required
}

// On reports whether commands are bounded. mode is as in [Wish].
func (s *Sandboxes) On(mode Mode) bool {
	return s != nil && Stricter(s.cfg.Mode, mode).rank() > 0
}

// Seatbelt returns the bounds of a command in folders as a profile for sandbox-exec of macOS; see
// [sandbox.Seatbelt].
func (s *Sandboxes) Seatbelt(folders []string) string {
	b := s.bounds(folders)
	b.Denied = s.deniedNow()
	return sandbox.Seatbelt(b.Bounds, s.hidden(), s.cfg.Shown)
}

// Close closes the room. Commands that still run have no network any more.
func (s *Sandboxes) Close() {
	if s == nil {
		return
	}
	s.forwards.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, p := range s.own {
		p.Close()
	}
	s.shut()
}

// bounded is the bounds of a command, and the repositories in its folders.
type bounded struct {
	sandbox.Bounds
	gits []string
}

// bounds are the bounds of a command in folders.
func (s *Sandboxes) bounds(folders []string) bounded {
	all := slices.Concat(s.shared(), s.aside(), find(folders))
	b := bounded{Bounds: sandbox.Bounds{Write: trusted(all), Ports: devPorts()}}
	for _, dir := range folders {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		nested := s.nested(real)
		b.Fixed = append(b.Fixed, nested.protected...)
		for _, git := range nested.repositories {
			b.Fixed = append(b.Fixed, s.configured(git, filepath.Dir(git))...)
		}
		b.gits = append(b.gits, nested.repositories...)
		git, common := gitFolders(real)
		for _, g := range []string{git, common} {
			if g == "" {
				continue
			}
			if isRepository(g) && !slices.Contains(b.gits, g) {
				b.gits = append(b.gits, g)
			}
			b.Fixed = slices.Concat(b.Fixed, protectedGit(g, git), s.configured(g, real))
		}
		// A command writes the files in its folders. Only files outside say something about them.
		if git != "" && !within(git, b.Write) {
			b.Write = append(b.Write, git)
			if common != "" && !within(common, b.Write) {
				b.Write = append(b.Write, common)
			}
		}
	}
	return b
}

func (s *Sandboxes) findShared() []found {
	paths := slices.Concat(s.temp, []string{s.cfg.TempDir, s.cfg.Scratch}, s.cfg.Write)
	if s.cfg.Caches != "" {
		paths = append(paths, filepath.Join(s.cfg.Caches, "own"))
	}
	return find(paths)
}

// apart takes the files out of protected ones that are opened, or that hold an opened file.
func apart(fixed, opens []string) (kept, open []string) {
	for _, f := range fixed {
		holds := func(o string) bool { return within(o, []string{f}) || within(plain(o), []string{f}) }
		if slices.ContainsFunc(opens, holds) {
			open = append(open, f)
		} else {
			kept = append(kept, f)
		}
	}
	return kept, open
}

// plain is a path without symlinks except in its last name.
func plain(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return path
	}
	return filepath.Join(dir, filepath.Base(path))
}

// devPorts are TCP ports that servers under development use, to which commands connect where
// only ports can be bounded.
func devPorts() []uint16 {
	ports := []uint16{4200, 4321, 5000, 5173, 5432, 6379, 8000, 8080, 8081, 8443, 8888, 9000, 9090, 9229}
	for p := uint16(3000); p <= 3010; p++ {
		ports = append(ports, p)
	}
	return ports
}

// secrets are files and folders below the home of the user that no command needs to read.
//
//rules:constant never changed after this line
var secrets = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".kube", ".docker/config.json", ".netrc",
	".pypirc", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub",
	".config/glab-cli", ".npmrc", ".yarnrc.yml", ".cargo/credentials", ".cargo/credentials.toml",
	".gem/credentials", ".terraform.d/credentials.tfrc.json", ".vault-token", ".password-store",
	".local/share/keyrings", ".local/share/kwalletd", ".mozilla", ".config/google-chrome",
	".config/chromium", ".config/BraveSoftware", ".config/op", ".config/rclone", ".config/doctl",
	".config/fly", ".fly", ".config/heroku", ".oci", ".claude/.credentials.json", ".claude.json",
	".codex/auth.json", ".gemini/oauth_creds.json", ".local/share/opencode/auth.json",
	".config/github-copilot", ".bash_history", ".zsh_history", ".psql_history", ".mysql_history", ".pgpass",
	".my.cnf", ".config/drover",
}

// hidden is what no command of the session can read.
func (s *Sandboxes) hidden() []string {
	out := []string{"/etc/shadow", "/etc/gshadow", "/run/user", "/run/screen"}
	if s.cfg.Home != "" {
		for _, f := range secrets {
			out = append(out, filepath.Join(s.cfg.Home, f))
		}
	}
	for _, c := range s.cfg.Credentials {
		out = append(out, c.Hidden)
	}
	kept := out[:0]
	for _, f := range append(out, s.cfg.Hidden...) {
		if filepath.IsAbs(f) && !within(filepath.Clean(f), s.cfg.Open) {
			kept = append(kept, filepath.Clean(f))
		}
	}
	return kept
}

// maxGitFile bounds a file of git that holds a path.
const maxGitFile = 8 << 10

// gitFolders are the folder of a repository and, of a further checkout, the one that it shares;
// they are empty for a folder without a repository, which has no symlink in its path.
func gitFolders(dir string) (git, common string) {
	file := filepath.Join(dir, ".git")
	info, err := os.Lstat(file)
	if err != nil {
		return "", ""
	}
	if info.IsDir() {
		return file, ""
	}
	data, err := home.ReadFile(file, maxGitFile)
	path, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir:")
	if err != nil || !ok {
		return "", ""
	}
	if path = strings.TrimSpace(path); !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	// From here on only the path without symlinks counts: the file that was checked is the file that is opened.
	if git, err = filepath.EvalSymlinks(path); err != nil {
		return "", ""
	}
	common = filepath.Dir(filepath.Dir(git))
	// Whoever writes the folder can write any path into that file. The repository knows its
	// checkouts, and it is outside.
	back, err := home.ReadFile(filepath.Join(git, "gitdir"), maxGitFile)
	if err != nil || filepath.Clean(strings.TrimSpace(string(back))) != file ||
		filepath.Base(filepath.Dir(git)) != "worktrees" {
		return "", ""
	}
	return git, common
}
