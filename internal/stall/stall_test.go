package stall

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// unescape reads a tail as the corpus writes it: \\ \n \r \t \xHH.
func unescape(t *testing.T, s string) []byte {
	t.Helper()
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return []byte(text)
}

func corpus(t *testing.T, name string) (tails [][]byte) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		tail, _, _ := strings.Cut(lines.Text(), "\t")
		tails = append(tails, unescape(t, tail))
	}
	return tails
}

// Tails that were captured from real programs: at most one in fifty may be taken
// for the other.
func TestCaptured(t *testing.T) {
	r := New()
	for name, want := range map[string]bool{"waiting.txt": true, "progress.txt": false, "more_waiting.txt": true, "more_progress.txt": false} {
		wrong, all := 0, corpus(t, name)
		for _, tail := range all {
			if line, got := r.Waiting(tail); got != want {
				wrong++
				t.Logf("%s: %q: waiting %v %q", name, tail, got, line)
			}
		}
		if len(all) < 50 || wrong*50 > len(all) {
			t.Errorf("%s: %d of %d are wrong", name, wrong, len(all))
		}
	}
}

// Prompts and progress of further programs, written down by what they print.
func TestFurther(t *testing.T) {
	r := New()
	for want, tails := range map[bool][]string{
		true: {
			"[sudo] password for ann: ", "Password: ", "(current) UNIX password: ", "Password for user postgres: ", "Enter password: ",
			"Do you want to continue? [Y/n] ", "Proceed (Y/n)? ", "Is this OK? (yes) ", "package name: (ws) ", "Your selection? ", "Key is valid for? (0) ",
			"Change (N)ame, (C)omment, (E)mail or (O)kay/(Q)uit? ", "cp: overwrite 'b'? ", "replace a.txt? [y]es, [n]o, [A]ll, [N]one, [r]ename: ",
			"Command (m for help): ", "(parted) ", "(gdb) ", "(Pdb) ", "(lldb) ", ">>> ", "... ", "In [1]: ", "irb(main):001:0> ", "mysql> ", "MariaDB [(none)]> ", "postgres=# ", "postgres-> ",
			"127.0.0.1:6379> ", "Username (ann): ", "*** foo.conf (Y/I/N/O/D/Z) [default=N] ? ", "Press Space or Return to end.", "Hit any key to continue",
			"Press ENTER or type command to continue", "Name (host:ann): ", "telnet> ", "[yes] ", "cpan[1]> ", "Local version of thing (FOO) [N/y/?] (NEW) ",
			"(Y)es / (N)o / (A)lways / (S)kip all / A(u)to rename all / (Q)uit? ", "Verifying - Enter Export Password:", "An optional company name []:",
			"Is the information correct? [Y/n] ", "root@host:/srv# ", "~ ❯ ", "bash-5.2$ ", "host% ", "Continue?\n", "Ok to proceed? (y) ", "Overwrite? ",
			"? Project name: › my-app", "\x1b]0;setup\x1b\\\x1b[1mContinue?\x1b[0m ", "\x1b]8;;http://x\x1b\\Do it\x1b]8;;\x1b\\ [y/N] ", "\x1b[36m?\x1b[39m \x1b[1mPick one\x1b[22m (Use arrow keys)", "Enter your choice [1-3]: ", "Type 'yes' to go on: ", "One-time password (OTP): ",
			"Press any key to continue . . . ", "npm notice\nEnter one-time password: ", "Enter MFA code for arn:aws:iam::1:mfa/x: ", "remove a? ", "(END)", ":", "--More--(12%)",
			"Save changes? [Y]es/[N]o/[C]ancel ", "Would you like to apply them?", "Are you sure?  ", "Reinstall it all? [y/N]: ", "user@host's password: ", "Enter a number: ", "Choose an option: ",
		},
		false: {
			"   ━━━━━━━━━━━━━━━━━━━╸          1.2/3.4 MB 5.0 MB/s eta 0:00:01", "      1,234,567  12%    1.20MB/s    0:00:12\r      2,234,567  22%    1.20MB/s    0:00:10",
			"   Compiling serde v1.0.1\n", "tests/test_a.py ....", "checking for gcc... ", "checking whether the C compiler works... ", "Doing aes-128 for 3s on 16 size blocks: ",
			"Writing superblocks and filesystem accounting information: ", "Creating journal (4096 blocks): ", "Testing with pattern 0xaa: ", "Reading package lists... ",
			"test tests::works ... ", "64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.05 ms\n", "Found 0 errors. Watching for file changes.\n", "Listening on port: 3000\n",
			"src/main.c:12:", "/usr/share/man/nl/man1/apro", "2026-11-21T10:00:00Z info: starting", "12:00:01 waiting for lock:", "Waiting for cluster: ", "error: could not connect: ",
			"What is new in this version?\nNothing much.\n", "Downloading: 12%", "ETA: ", "[====>      ] 45%", "frame= 1234 fps= 30 q=28.0 size=    256kB time=00:00:10.00 bitrate= 200kbits/s speed=1.2x\r",
			"Resolving localhost (localhost)... ", "Pulling from library/x\nabc: Downloading [==>   ]  1.2MB/3MB\r", "ok  \tx\t0.1s\n", "123\n", "", "\n\n", "Why did it fail? See the log.\n", "PASS\n",
			"{\"msg\":\"Do you want to continue?\",\"n\":1}\n", "asked ['overwrite?']\n",
			"a very long line " + strings.Repeat("of text ", 60) + "?", "10 20 30\n", "|\b/\b-\b\\\b|", "Elapsed time: 12s", "12 of 40", "remote: Counting objects: 12",
		},
	} {
		wrong := 0
		for _, tail := range tails {
			if line, got := r.Waiting([]byte(tail)); got != want {
				wrong++
				t.Errorf("%q: waiting %v %q", tail, got, line)
			}
		}
		t.Logf("%d of %d wrong", wrong, len(tails))
	}
}

// Each of the seven patterns, in both cases of letters, and a line that is near
// to it and none.
func TestPatterns(t *testing.T) {
	r := New()
	for _, c := range []struct{ yes, no string }{
		{"go on (Y/n)", "go on y or n"}, {"go on [y/N]", "go on y/n"}, {"sure (YES/no)", "sure yes/no"},
		{"Do you want this?  ", "Do you want this? I do."}, {"PRESS ENTER", "press the button"}, {"CONTINUE?", "continue."}, {"overwrite?", "overwritten"},
	} {
		for _, end := range []string{"", "\n"} {
			if _, ok := r.Waiting([]byte("x\n" + c.yes + end)); !ok {
				t.Errorf("%q is not seen", c.yes+end)
			}
			if line, ok := r.Waiting([]byte("x\n" + c.no + end)); ok {
				t.Errorf("%q is taken for %q", c.no+end, line)
			}
		}
	}
}

// Nothing that a command prints makes the rule fail, or takes long.
func FuzzWaiting(f *testing.F) {
	for _, name := range []string{"waiting.txt", "progress.txt"} {
		file, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(file)) {
			f.Add([]byte(line))
		}
	}
	r := New()
	f.Fuzz(func(t *testing.T, tail []byte) {
		line, ok := r.Waiting(tail)
		if ok && (line == "" || strings.ContainsAny(line, "\x1b\n\r\x00")) {
			t.Errorf("asks with %q", line)
		}
	})
}
