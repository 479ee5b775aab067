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

// Tails that were captured from real programs. Those that are taken for the other
// are known, and no more may be.
func TestCaptured(t *testing.T) {
	r := New()
	for _, set := range []struct {
		name             string
		missed, alarming int
	}{
		{"", 0, 0}, {"more_", 1, 2}, {"captured_", 4, 0}, {"second_", 1, 0}, {"third_", 4, 4}, {"fourth_", 4, 2},
		{"fifth_", 2, 1},
	} {
		for name, want := range map[string]bool{set.name + "waiting.txt": true, set.name + "progress.txt": false} {
			wrong, most, all := 0, set.alarming, corpus(t, name)
			if want {
				most = set.missed
			}
			for _, tail := range all {
				if line, got := r.Waiting(tail); got != want {
					wrong++
					t.Logf("%s: %q: waiting %v %q", name, tail, got, line)
				}
			}
			if len(all) < 40 || wrong > most {
				t.Errorf("%s: %d of %d are wrong", name, wrong, len(all))
			}
		}
	}
}

// Prompts and progress of further programs, written down by what they print.
func TestFurther(t *testing.T) {
	r := New()
	for want, tails := range map[bool][]string{
		true: {
			"[sudo] password for ann: ", "Password: ", "(current) UNIX password: ", "Password for user postgres: ",
			"Enter password: ",
			"Do you want to continue? [Y/n] ", "Proceed (Y/n)? ", "Is this OK? (yes) ", "package name: (ws) ",
			"Your selection? ", "Key is valid for? (0) ",
			"Change (N)ame, (C)omment, (E)mail or (O)kay/(Q)uit? ", "cp: overwrite 'b'? ",
			"replace a.txt? [y]es, [n]o, [A]ll, [N]one, [r]ename: ",
			"Command (m for help): ", "(parted) ", "(gdb) ", "(Pdb) ", "(lldb) ", ">>> ", "... ", "In [1]: ",
			"irb(main):001:0> ", "mysql> ", "MariaDB [(none)]> ", "postgres=# ", "postgres-> ",
			"127.0.0.1:6379> ", "Username (ann): ", "*** foo.conf (Y/I/N/O/D/Z) [default=N] ? ", "Press Space or Return to end.",
			"Hit any key to continue",
			"Press ENTER or type command to continue", "Name (host:ann): ", "telnet> ", "[yes] ", "cpan[1]> ",
			"Local version of thing (FOO) [N/y/?] (NEW) ",
			"(Y)es / (N)o / (A)lways / (S)kip all / A(u)to rename all / (Q)uit? ", "Verifying - Enter Export Password:",
			"An optional company name []:",
			"Is the information correct? [Y/n] ", "root@host:/srv# ", "~ ❯ ", "bash-5.2$ ", "host% ", "Continue?\n",
			"Ok to proceed? (y) ", "Overwrite? ",
			"? Project name: › my-app", "\x1b]0;setup\x1b\\\x1b[1mContinue?\x1b[0m ",
			"\x1b]8;;http://x\x1b\\Do it\x1b]8;;\x1b\\ [y/N] ", "\x1b[36m?\x1b[39m \x1b[1mPick one\x1b[22m (Use arrow keys)",
			"Enter your choice [1-3]: ", "Type 'yes' to go on: ", "One-time password (OTP): ",
			"Press any key to continue . . . ", "npm notification\nEnter one-time password: ",
			"Enter MFA code for arn:aws:iam::1:mfa/x: ", "remove a? ", "(END)", ":", "--More--(12%)",
			"Save changes? [Y]es/[N]o/[C]ancel ", "Would you like to apply them?", "Are you sure?  ",
			"Reinstall it all? [y/N]: ", "user@host's password: ", "Enter a number: ", "Choose an option: ",
			"Contraseña: ", "パスワード: ", "密码：", "¿Desea continuar? [S/n] ", "Êtes-vous sûr\u202f? ", "是否继续？", "新しいパスワード:",
			"Appuyez sur Entrée pour continuer...", "Pulse cualquier tecla . . . ", "overwrite ‘a’?", "Which release?: ",
			"Press RETURN to continue or any other key to abort:\n", "Please type the name of the bucket to confirm:\n",
			"[s/i/l/p]?\n",
			"--Man-- next: x(1) [ view (return) | skip (Ctrl-D) | quit (Ctrl-C) ]\n", "(l)oaded (v)ersion (k)ill\n",
			"[pause]\nCheck the dashboards:\n",
			"Remove them? [return = yes | esc = no]\n", "To continue, type a device name when ready.\n", "smb: \\> ", "dav:!> ",
			"1 ]=> ", "| ?- ", "a b = ", "Port {5432}: ", "[r] restart [q] quit", "Really? (y, n)\n", "Go on [Y|n]\n",
			"Put in the disk, then press Return.\n", "Type ERASE to go ahead, anything else to quit.\n",
			"Notes (Ctrl+D to finish)\n", "? ", "& ", "0] ", "(qemu) ", "[1] pry(main)> ",
		},
		false: {
			"   ━━━━━━━━━━━━━━━━━━━╸          1.2/3.4 MB 5.0 MB/s eta 0:00:01",
			"      1,234,567  12%    1.20MB/s    0:00:12\r      2,234,567  22%    1.20MB/s    0:00:10",
			"   Compiling serde v1.0.1\n", "tests/test_a.py ....", "checking for gcc... ",
			"checking whether the C compiler works... ", "Doing aes-128 for 3s on 16 size blocks: ",
			"Writing superblocks and filesystem accounting information: ", "Creating journal (4096 blocks): ",
			"Testing with pattern 0xaa: ", "Reading package lists... ",
			"test tests::works ... ", "64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.05 ms\n",
			"Found 0 errors. Watching for file changes.\n", "Listening on port: 3000\n",
			"src/main.c:12:", "/usr/share/man/nl/man1/apro", "2026-11-21T10:00:00Z info: starting", "12:00:01 waiting for lock:",
			"Waiting for cluster: ", "error: could not connect: ",
			"What is new in this version?\nNothing much.\n", "Downloading: 12%", "ETA: ", "[====>      ] 45%",
			"frame= 1234 fps= 30 q=28.0 size=    256kB time=00:00:10.00 bitrate= 200kbits/s speed=1.2x\r",
			"Resolving localhost (localhost)... ", "Pulling from library/x\nabc: Downloading [==>   ]  1.2MB/3MB\r",
			"ok  \tx\t0.1s\n", "123\n", "", "\n\n", "Why did it fail? See the log.\n", "PASS\n",
			"{\"msg\":\"Do you want to continue?\",\"n\":1}\n", "asked ['overwrite?']\n",
			"a very long line " + strings.Repeat("of text ", 60) + "?", "10 20 30\n", "|\b/\b-\b\\\b|", "Elapsed time: 12s",
			"12 of 40", "remote: Counting objects: 12",
			"Waiting for connection to broker [localhost:9092]: ", "Processing batch 3 of 17? ",
			"? Installing dependencies  (this can take a while) ",
			"t/a.t .. # Overwrite? [y/N]\n", "✓ asks to overwrite? [y/n] (3 ms)\n", "> demo@1.0 build\n> tsc -p .\n\n",
			"Type: text/html\n", "Select:\n",
			"Overwrite? [y/N] N (non-interactive)\n", "{\"msg\":\"continue? yes\"}\n", "level=info msg=\"overwrite?\"\n",
			"\r⠹ waiting for approval (y/n)", "41863f6 Ask: overwrite? [y/N]\n", "[3/7] Resolved 812 packages (12 new) ",
			"正在连接：",
			"\x1b[32m⠋\x1b[0m Thinking (esc to interrupt) ", "42/100 [=====>     ] ",
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

// What programs do to a terminal tells as much as what they write: the line that
// is said, or none.
func TestScreens(t *testing.T) {
	r := New()
	for _, c := range []struct{ what, tail, line string }{
		{"a line editor has the line", "3.14\r\n\x1b[?2004hscale; ", "scale;"},
		{"it has an empty one", "\x1b[?2004h", nothing},
		{"the line was taken", "\x1b[?2004h$ make\r\n\x1b[?2004l\rcc -c a.c\r\n", ""},
		{"the cursor stands in a line that was drawn again",
			"\x1b[1Girb(main):001:1* \x1b[K\x1b[1G\x1b[1Girb(main):001:1* \x1b[K\x1b[18G", "irb(main):001:1*"},
		{"a spinner is drawn again", "\x1b[1G\x1b[0K|\x1b[1G\x1b[0K/\x1b[1G\x1b[0K-", ""},
		{"a question in a box", "\x1b[10;5H│ Remove it?   │\x1b[12;5H│ <Yes>  <No>  │\x1b[12;8H", "Remove it?"},
		{"a box drawn with letters", "\x1b[10;5H\x1b(0lqqk\x1b[11;5Hx\x1b(B Name \x1b(0x\x1b[12;5Hmqqj\x1b(B\x1b[11;7H",
			"Name"},
		{"an editor, which shows of what others tell",
			"\x1b[1;1Hload average: 1\x1b[2;1Ha\x1b[3;1Hb\x1b[4;1Hc\x1b[5;1Hd\x1b[24;1H-- INSERT --\x1b[5;2H", "d"},
		{"a gauge in a box", "\x1b[9;5H│ Copying │\x1b[10;5H│ ████      42%  │\x1b[10;9H", ""},
		{"a box that asks for patience", "\x1b[9;5H│ Please wait │\x1b[9;9H", ""},
		{"watch", "\x1b[H\x1b[2JContinue?\x1b[1;19H9\x1b[24;80H", ""},
		{"a table of measures", "\x1b[7;1H 12 root 20  0.0   0.1   0:00.78 sh\x1b[K\x1b[6;1H", ""},
		{"a bar in a line of its own, a line above it", "\x1b7\x1b[24;0fProgress: [ 89%]\x1b8Unpacking it", ""},
		{"a line that is written anew again and again", "copy a.txt? \rcopy b.txt? \rcopy c.txt? ", ""},
		{"a bar in a line of its own, lines above it", "\x1b7\x1b[24;0fProgress: [ 89%]\x1b8Processing triggers ...\r\n", ""},
		{"lines below one that was placed", "\x1b[11;1HCompiling\r\ncc -c a.c\r\n", ""},
		{"a screen that was cleared, and lines", "\x1b[24;1Hx\x1b[H\x1b[2JBuilding it\r\n", ""},
		{"lines drawn again from below", "\x1b[?25la\r\nb\r\n\x1b[2Ac\x1b[K\r\nd\x1b[K\r\n\x1b[?25h", ""},
		{"a list with its input below, drawn from above",
			"> main\r\n  dev\r\nbranch> \x1b[2A\r  main\x1b[2B\r\x1b[8C\x1b[?25h", "branch>"},
		{"a character again, before there was any", "\x1b[?2004h\x1b[9b$ ", "$"},
		{"the second screen", "\x1b[?1049h\x1b[?1h\x1b=\r1\r\n2\r\n\x1b[K/39", "/39"},
		{"it was left", "\x1b[?1049h\x1b[?1h\x1b=2\x1b[?1l\x1b>\x1b[?1049l\rdone\r\n", ""},
		{"where the cursor is was asked for", "version 1\r\n\x1b[6n", "version 1"},
		{"it was, and the program went on", "version 1\r\n\x1b[6nLoading it\r\n", ""},
		{"a space was taken back", "\x1b[2K\rvault key \b", "vault key"},
		{"so were several, of a count", "12/40\b\b\b\b\b     \b\b\b\b\b", ""},
		{"a sign was wiped out", "Working |\b \b", ""},
		{"the cursor stands before the line", "\x1b[1G   overwrites\x1b[K\x1b[77G1/1\x1b[2G", ""},
		{"one of two, without a cursor", "\x1b[?25l\x1b[36m❯\x1b[39m Deploy now\r\n● Yes / ○ No\r\n\r\n", "● Yes / ○ No"},
		{"marks of what is done", "● static\r\n○ dynamic\r\n", ""},
		{"a cursor that is drawn", "\x1b[?25lName\r\n\x1b[36m> \x1b[0m\x1b[7;36m \x1b[0m      \x1b[K\r", "> █"},
		{"the numbers of lines in reverse video", "\x1b[7m7\x1b[0m x = 1;\r\n\x1b[7m \x1b[0m     ~\r\n", ""},
		{"a question in a line of a screen of measures",
			"\x1b[7;1H 12 root 20  0.0   0.1   0:00.78 sh\x1b[K\x1b[6;1HPID to end [default 12] ", "PID to end [default 12]"},
		{"the line of a pager", "one...\r\n\x1b[7m/etc/services\x1b[27m\x1b[K", "/etc/services"},
		{"a pager that waits for more", "one\r\n\x1b[7mWaiting for data... (interrupt to abort)\x1b[27m\x1b[K", ""},
	} {
		if line, _ := r.Waiting([]byte(c.tail)); line != c.line {
			t.Errorf("%s: %q, want %q", c.what, line, c.line)
		}
	}
}

// Each of the seven patterns, in both cases of letters, and a line that is near
// to it and none.
func TestPatterns(t *testing.T) {
	r := New()
	for _, c := range []struct{ yes, no string }{
		{"go on (Y/n)", "go on y or n"}, {"go on [y/N]", "go on y/n"}, {"sure (YES/no)", "sure yes/no"},
		{"Do you want this?  ", "Do you want this? I do."}, {"PRESS ENTER", "press the button"}, {"CONTINUE?", "continue."},
		{"overwrite?", "overwritten"},
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
	for _, name := range []string{"waiting.txt", "progress.txt", "captured_waiting.txt"} {
		file, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(file)) {
			f.Add([]byte(strings.NewReplacer(`\x1b`, "\x1b", `\r`, "\r", `\n`, "\n").Replace(line)))
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
