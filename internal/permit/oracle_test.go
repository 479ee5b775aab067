package permit

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// oracleVariable is how many lines TestOracle runs, and by DROVER_ORACLE_SEED
// from which seed on; unset: a few.
const oracleVariable = "DROVER_ORACLE"

// What is approved has no effect: lines made of those of the corpus by
// quoting, splitting, nesting, abbreviating, reordering and worse are decided,
// and what is allowed is really run under strace. It may open nothing for writing
// but the null device, run programs of the system only, and connect nowhere.
func TestOracle(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("NOT TESTED: strace is missing, so nothing that was approved is run")
	}
	wanted, seed := 25, uint64(1)
	if n, err := strconv.Atoi(os.Getenv(oracleVariable)); err == nil {
		wanted = n
	}
	if n, err := strconv.ParseUint(os.Getenv(oracleVariable+"_SEED"), 10, 64); err == nil {
		seed = n
	}
	o := newOracle(t, strace)
	rng := rand.New(rand.NewPCG(seed, 0))
	ran, tried := 0, 0
	seen := map[string]bool{}
	for from := time.Now(); ran < wanted && tried < 400*wanted; tried++ {
		if wanted == 25 && time.Since(from) > 5*time.Second {
			break
		}
		p := o.places[rng.IntN(len(o.places))]
		line := o.mutate(rng)
		if seen[line] || p.g.Decide(bash(line)).Decision != Allow {
			continue
		}
		seen[line] = true
		ran++
		for _, effect := range o.run(t, p.dir, line) {
			t.Errorf("approved, but it has an effect: %q in %s: %s", line, filepath.Base(filepath.Dir(p.dir)), effect)
		}
	}
	t.Logf("%d lines decided, %d approved and run", tried, ran)
	if ran == 0 {
		t.Error("no line was approved")
	}
}

type oracle struct {
	strace string
	places []place
	seeds  []string
	temp   string
}

type place struct {
	dir string
	g   *Gate
}

func newOracle(t *testing.T, strace string) *oracle {
	o := &oracle{strace: strace, temp: t.TempDir()}
	for _, fixture := range []string{"", "", "", "glob-flags-rg", "glob-flags-sed", "glob-flags-git", "git-textconv", "git-filter"} {
		dir := workspace(t, fixture)
		o.places = append(o.places, place{dir, gate(t, Rules{Cwd: dir, Home: filepath.Join(filepath.Dir(dir), "home"), ReadOnlyAuto: true,
			Allow: splitRules("Bash(ls:*),Bash(cat:*),Bash(echo:*),Bash(find:*),Bash(rg:*),Bash(sed -n:*),Bash(sort:*),Bash(git log:*),Bash(git diff:*),Bash(git show:*),Bash(git grep:*),Bash(git status)")})})
	}
	for _, r := range corpus(t) {
		if !strings.Contains(r.rules.text(), "npm") && !strings.Contains(r.rules.text(), "go test") && len(r.command) < 400 {
			o.seeds = append(o.seeds, r.command)
		}
	}
	data, err := os.ReadFile("testdata/ours.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if f := strings.SplitN(text, "\t", 3); f[1] == "ro" {
			o.seeds = append(o.seeds, strings.NewReplacer(`\\`, `\`, `\n`, "\n").Replace(f[2]))
		}
	}
	return o
}

func (r Rules) text() string { return strings.Join(slices.Concat(r.Allow, r.Ask, r.Deny), " ") }

// mutate makes a line of one or two others.
func (o *oracle) mutate(rng *rand.Rand) string {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	line := o.seeds[rng.IntN(len(o.seeds))]
	for range rng.IntN(4) {
		words := strings.Split(line, " ")
		i := rng.IntN(len(words))
		switch rng.IntN(16) {
		case 0:
			words[i] = pick("'", `"`, `\`, "''", `""`, "$''", "\\\n") + words[i]
		case 1:
			words[i] = "'" + words[i] + "'"
		case 2:
			words[i] = `"` + words[i] + `"`
		case 3:
			if n := len(words[i]); n > 0 {
				at := rng.IntN(n)
				words[i] = words[i][:at] + pick(`\`, "''", `""`, "\\\n", "$''", "*", "?", "[", "{,}", "=", "\u200b", "\t", "\n", ";", "&", "|",
					"#", "$x", "~", "!", "%", ":", "/", "-") + words[i][at:]
			}
		case 4:
			if strings.HasPrefix(words[i], "--") && len(words[i]) > 5 {
				words[i] = words[i][:4+rng.IntN(len(words[i])-4)]
			}
		case 5:
			k := rng.IntN(len(words))
			words[i], words[k] = words[k], words[i]
		case 6:
			words = slices.Delete(words, i, i+1)
		case 7:
			words = slices.Insert(words, i, words[rng.IntN(len(words))])
		case 8:
			words = slices.Insert(words, i, pick("-o", "-i", "-n", "-e", "-f", "-c", "-x", "-O", "-w", "-r", "-R", "-l", "-p", "-d", "-z", "-t",
				"--", "-", "--output=PWNED", "-oPWNED", "-exec", "PWNED", "w PWNED", "'w PWNED'", "--pre=./payload.sh",
				"--compress-prog=./payload.sh",
				"--in-place", "--textconv", "--ext-diff", "--filters", "../outside", "link-out", "-delete", "-fprint", "./payload.sh", "1e",
				"$x", "*", "./*", "a.txt", "src", "2>&1", "<a.txt", "HEAD", "-C", "evil.git", "--paginate", "-P", "1", "'s/a/b/w PWNED'"))
		case 9:
			line = o.seeds[rng.IntN(len(o.seeds))]
			words = []string{strings.Join(words, " ") + pick(" && ", " || ", "; ", " | ", "\n", " & ", " |& ") + line}
		case 10:
			words = []string{strings.Replace(pick("(%)", "{ %; }", "if %; then :; fi", "for i in a.txt src; do %; done", "% | cat",
				"cat a.txt | %", "! %", "time %", "nice %", "timeout 5 %", "echo \"$(%)\"", "cat <(%)", "while %; do break; done",
				"x=PWNED; %", "x=-o; %", "cd src && %", "cd src; %", "command %", "nohup %", "stdbuf -oL %", "LC_ALL=C %",
				"[[ -f a.txt ]] && %", "case a in a) %;; esac", "cat <<EOF\n$(%)\nEOF", "% <<'EOF'\nw PWNED\nEOF", "read -r x < a.txt; %",
				"set -e; %"), "%", strings.Join(words, " "), 1)}
		case 11:
			words[i] = pick("$x", "\"$x\"", "${x}", "$(echo "+words[i]+")", "{"+words[i]+",}", "$'"+words[i]+"'", "~/"+words[i], words[i]+"*",
				"`echo "+words[i]+"`")
		case 12:
			words = append(words, pick("> PWNED", ">> PWNED", "2> PWNED", ">&2", "&> /dev/null", ">| PWNED", "< a.txt", "<<< x", "2>/dev/null",
				"; touch PWNED", "| sh", "| tee PWNED", "# x", "-o PWNED", "PWNED"))
		case 13:
			if i+1 < len(words) && strings.HasPrefix(words[i], "-") && strings.HasPrefix(words[i+1], "-") {
				words[i] += strings.TrimLeft(words[i+1], "-")
				words = slices.Delete(words, i+1, i+2)
			}
		case 14:
			other := strings.Fields(o.seeds[rng.IntN(len(o.seeds))])
			if len(other) > 0 {
				words[i] = other[rng.IntN(len(other))]
			}
		case 15:
			words[i] = strings.ToUpper(words[i][:min(1, len(words[i]))]) + words[i][min(1, len(words[i])):]
		}
		line = strings.Join(words, " ")
	}
	return line
}

// run runs a line under strace and returns what it did that it must not.
func (o *oracle) run(t *testing.T, dir, line string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	log := filepath.Join(o.temp, "trace")
	temp := filepath.Join(o.temp, "tmp")
	if err := os.MkdirAll(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, o.strace, "-f", "-qq", "-y", "-s", "4096", "-o", log,
		"-e", "trace=open,openat,openat2,creat,execve,execveat,connect,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,symlink,symlinkat,link,linkat,truncate,chmod,fchmodat,mknod,mknodat,utimensat",
		"bash", "--noprofile", "--norc", "-c", line)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + binaries, "HOME=" + filepath.Join(filepath.Dir(dir), "home"), "TMPDIR=" + temp, "GIT_CONFIG_NOSYSTEM=1",
		"LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	_ = cmd.Run() // how it ends is its own business
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left in the background
	}
	data, err := os.ReadFile(log)
	if err != nil || len(data) == 0 {
		t.Fatalf("strace left no trace: %v", err)
	}
	var out []string
	for _, call := range bytes.Split(data, []byte("\n")) {
		if why := o.effect(string(call), dir); why != "" {
			out = append(out, why)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "PWNED")); err == nil {
		out = append(out, "it made PWNED")
		_ = os.Remove(filepath.Join(dir, "PWNED"))
	}
	return out
}

// effect says what is wrong with one system call.
func (o *oracle) effect(call, dir string) string {
	_, call, _ = strings.Cut(call, " ")
	call = strings.TrimSpace(call)
	name, args, ok := strings.Cut(call, "(")
	if !ok || strings.Contains(call, o.temp) {
		return ""
	}
	path := ""
	if f := strings.SplitN(args, `"`, 3); len(f) == 3 {
		path = f[1]
	}
	// git refreshes its index when it reads; that changes no file of the project.
	if strings.HasSuffix(path, "/.git/index.lock") || strings.HasSuffix(path, ".git/index") && strings.HasPrefix(name, "rename") {
		return ""
	}
	switch name {
	case "open", "openat", "openat2":
		if (strings.Contains(args, "O_WRONLY") || strings.Contains(args, "O_RDWR") || strings.Contains(args,
			"O_CREAT") || strings.Contains(args, "O_TRUNC")) && path != "/dev/null" && path != "/dev/tty" {
			return call
		}
	case "execve", "execveat":
		if !filepath.IsAbs(path) || strings.HasPrefix(path, dir) || !slices.ContainsFunc([]string{"/usr/", "/bin/"},
			func(p string) bool { return strings.HasPrefix(path, p) }) {
			return call
		}
		if slices.Contains([]string{"sh", "touch", "sudo", "tee"}, filepath.Base(path)) && !strings.Contains(call, "git-submodule") {
			return call
		}
	case "connect":
		if !strings.Contains(args, "/nscd/socket") && !strings.Contains(args, "AF_NETLINK") {
			return call
		}
	case "creat", "unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "symlink", "symlinkat", "link", "linkat",
		"truncate", "chmod", "fchmodat", "mknod", "mknodat":
		return call
	}
	return ""
}

// Our parser and bash read the same line: of lines put together from pieces of
// the language, those that are approved never reach the command that is hidden in
// them.
func TestSoup(t *testing.T) {
	wanted, seed := 100, uint64(1)
	if n, err := strconv.Atoi(os.Getenv(oracleVariable)); err == nil {
		wanted = n
	}
	if n, err := strconv.ParseUint(os.Getenv(oracleVariable+"_SEED"), 10, 64); err == nil {
		seed = n
	}
	dir := workspace(t, "")
	g := gate(t, Rules{Cwd: dir, ReadOnlyAuto: true})
	rng := rand.New(rand.NewPCG(seed, 1))
	pieces := []string{"echo", "cat", "ls", "a.txt", "touch PWNED", "(touch PWNED)", "$(touch PWNED)", "`touch PWNED`", "$", "(", ")", "{", "}",
		"`", "\"", "'", "\\", "\n", "\\\n", ";", "&", "|", "<", ">", "#", "!", "*", "[", "]", "=", "~", ",", "x", "-", ":-",
		"<<EOF\n", "\nEOF\n", "<<'EOF'\n", "<<-EOF\n\t", "<<<", "$((", "))", "${x", "${x:-", "${#x}", "$'", "$\"", "[[", "]]", "if", "then",
		"fi", "for i in", "do", "done", "case x in", "esac", ";;", "x)", "1", "2>&1", "/dev/null", "x=", "$x", "\"$x\"", "\t", "\r", "&&",
		"||", "|&", "&>", ">&", "<(", "<&", "{a,b}", "\\$", "\\`", "\\\"", "true"}
	ran, tried := 0, 0
	for from := time.Now(); ran < wanted && tried < 4000*wanted; tried++ {
		if wanted == 100 && time.Since(from) > 3*time.Second {
			break
		}
		var b strings.Builder
		b.WriteString("echo ")
		for range 3 + rng.IntN(9) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
			if rng.IntN(3) > 0 {
				b.WriteByte(' ')
			}
		}
		line := b.String()
		if !strings.Contains(line, "touch") || g.Decide(bash(line)).Decision != Allow {
			continue
		}
		ran++
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-c", line)
		cmd.Dir, cmd.Env, cmd.WaitDelay = dir, []string{"PATH=" + binaries, "HOME=" + dir}, time.Second
		_ = cmd.Run() // how it ends is its own business
		cancel()
		if os.Remove(filepath.Join(dir, "PWNED")) == nil {
			t.Errorf("approved, and it ran what is hidden in it: %q", line)
		}
	}
	t.Logf("%d lines decided, %d approved and run", tried, ran)
}
