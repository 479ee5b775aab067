package policy

import (
	"path/filepath"
	"testing"
)

// A rule for a command covers what people mean by it: its ordinary options, harmless
// variables before it, and, if it is written as a whole line, exactly this line.
func TestExpected(t *testing.T) {
	ws := workspace(t, "")
	for _, c := range []struct {
		rule, line string
		want       Outcome
	}{
		{"Bash(FOO=1 make)", "FOO=1 make", Allow},
		{"Bash(FOO=1 make)", "FOO=1 make clean", Ask},
		{"Bash(FOO=1 make)", "FOO=2 make", Ask},
		{"Bash(make > out.log)", "make > out.log", Allow},
		{"Bash(make > out.log)", "make > other.log", Ask},
		{"Bash(git commit -m \"a b\")", "git commit -m \"a b\"", Allow},
		{"Bash(echo $HOME | sh)", " echo $HOME | sh ", Allow},
		{"Bash(ls *.go)", "ls *.go", Allow},
		{"Bash(touch *.x)", "touch a.x b.x", Ask},
		{"Bash(tar:*)", "tar -xzf a.tgz", Allow},
		{"Bash(tar:*)", "tar xvf a.tar -C src", Allow},
		{"Bash(tar:*)", "tar czf a.tgz --exclude=node_modules src", Allow},
		{"Bash(tar:*)", "tar -xf a.tar --to-command=./payload.sh", Ask},
		{"Bash(tar:*)", "tar -I ./payload.sh -xf a.tar", Ask},
		{"Bash(tar:*)", "tar xf a.tar --use-compress-program ./payload.sh", Ask},
		{"Bash(tar:*)", "tar cf a.tar --checkpoint=1 --checkpoint-action=exec=./payload.sh a.txt", Ask},
		{"Bash(tar:*)", "tar -xf host:a.tar", Ask},
		{"Bash(tar:*)", "tar -cf a.tar *", Ask},
		{"Bash(tar:*)", "tar -xPf a.tar", Ask},
		{"Bash(make:*)", "FOO=1 make test", Allow},
		{"Bash(make)", "FOO=1 make", Allow},
		{"Bash(npm test:*)", "NODE_ENV=test CI=1 npm test", Allow},
		{"Bash(npm test:*)", "export NODE_ENV=test && npm test", Allow},
		{"Bash(go test:*)", "CGO_ENABLED=0 go test ./...", Allow},
		{"Bash(make:*)", "PATH=. make", Ask},
		{"Bash(make:*)", "LD_PRELOAD=./x.so make", Ask},
		{"Bash(make:*)", "MAKEFLAGS=--eval=x make", Ask},
		{"Bash(make:*)", "FOO='$(shell touch PWNED)' make", Ask},
		{"Bash(make:*)", "FOO=$x make", Ask},
		{"Bash(npm test:*)", "NODE_OPTIONS=--require=./x npm test", Ask},
		{"Bash(npm test:*)", "npm_config_script_shell=./x npm test", Ask},
		{"Bash(go test:*)", "GOFLAGS=-toolexec=./x go test ./...", Ask},
		{"Bash(go test:*)", "CC=./x go test ./...", Ask},
		{"Bash(git log:*)", "GIT_PAGER=./x git log", Ask},
		{"Bash(git log:*)", "PAGER=./x git log", Ask},
		{"Bash(python3:*)", "PYTHONPATH=. python3 x.py", Ask},
		{"Bash(python3:*)", "PYTHONSTARTUP=x python3 x.py", Ask},
		{"Bash(ls:*)", "BASH_ENV=./x ls", Ask},
		{"Bash(npm:*)", "EDITOR=./x npm run edit", Ask},
		{"Bash(make:*)", "FOO=1 ls", Ask},
	} {
		r := Rules{Cwd: ws, Home: filepath.Join(filepath.Dir(ws), "home"), ReadOnlyAuto: true, Allow: []string{c.rule}}
		if got := gate(t, r).Decide(bash(c.line)); got.Decision != c.want {
			t.Errorf("%q under %s: %s, want %s (%s)", c.line, c.rule, got.Decision, c.want, got.Reason)
		}
	}
}
