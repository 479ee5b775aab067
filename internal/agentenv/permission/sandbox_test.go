package permission

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// looks and works are commands with which developers look around, and build, test and edit.
const (
	looks = `ls -la
ls **/*.go
pwd
whoami
env
printenv PATH
cat README.md
head -50 main.go
tail -f -n 5 log.txt
less main.go
wc -l *.go
file main.go
stat go.mod
du -sh .
df -h
tree -L 2
find . -name '*.go' -mtime -1
find . -type f -exec wc -l {} +
grep -rn TODO .
rg -n 'func main'
fd -e go
ag pattern
sed -n '1,20p' main.go
awk -F: '{print $1}' /etc/passwd
sort -u names.txt
cut -d, -f2 data.csv
jq '.scripts' package.json
yq .name x.yaml
diff a.txt b.txt
cmp a b
git status
git log --oneline -20
git diff HEAD~1
git show HEAD:main.go
git blame main.go
git branch -a
git stash list
git remote -v
git grep -n TODO
git ls-files | xargs wc -l
git shortlog -sn
go list ./...
go vet ./...
go doc fmt.Println
go env
npm ls
npm outdated --json || true
pip list
python3 --version
python3 -c 'import sys; print(sys.path)'
node -e 'console.log(process.version)'
cargo tree
ps aux | grep node
lsof -i :3000
which go
type cargo
uname -a
history | tail -5
for f in *.go; do echo $f; done
test -f go.mod && echo yes`
	works = `go build ./...
go test ./... -run TestX -count=1
go mod tidy
go generate ./...
gofmt -w main.go
golangci-lint run --fix
make
make test -j4
cmake -B build && cmake --build build
gcc -o prog main.c && ./prog
./configure && make check
npm test
npm run build
npm run lint -- --fix
npx tsc --noEmit
npx jest --watch=false
yarn build
pnpm test
node script.js
deno task test
bun test
cargo build --release
cargo test
cargo fmt && cargo clippy
python3 -m pytest -x
python3 manage.py migrate
python3 -m venv .venv && . .venv/bin/activate && pip --version
ruff check --fix .
black .
mypy src
tox -e py311
bundle exec rspec
rake test
mvn -q test
./gradlew build
dotnet test
swift build
zig build test
mix test
stack test
terraform fmt
bash script.sh
sh -c 'echo $((1+2))'
sed -i 's/a/b/' main.go
perl -pi -e 's/a/b/' *.txt
echo hello > notes.txt
printf '%s\n' a b | tee -a list.txt
mkdir -p build/out && cp -r src build/out
mv old.go new.go
rm -rf build dist
touch empty.txt
chmod +x run.sh
ln -s main.go link.go
tar czf out.tgz src
unzip -o x.zip -d x
patch -p1 < fix.patch
git add -A && git commit -m 'work'
git checkout -b feature
git stash && git pull --rebase=false . main; git stash pop
git merge --no-ff feature
x=1; while [ $x -lt 3 ]; do x=$((x+1)); done; echo $x
nohup python3 -m http.server 8000 > server.log 2>&1 &
timeout 10 ./run.sh || echo slow
trap 'echo end' EXIT; ./run.sh`
)

// In a sandbox that bounds everything, without any rule, none of what developers do every day in
// a workspace is a question; what it does not bound by itself is.
func TestSandboxed(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"main.go", "README.md", "a.txt"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gate := func(mode Mode, deny ...string) *Gate {
		g, errs := New(Rules{Mode: mode, Cwd: dir, Home: "/home/user", Deny: deny, ReadOnlyAuto: true, Sandboxed: func() bool { return true }})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return g
	}
	decide := func(g *Gate, line string, more ...string) Verdict {
		in := map[string]any{"command": line}
		for _, m := range more {
			in[m] = true
		}
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		return g.Decide(agent.Call{Name: "Bash", Input: raw})
	}
	g := gate(Default)
	count := func(list string) (n int) {
		for line := range strings.Lines(list) {
			line = strings.TrimSpace(line)
			if v := decide(g, line); v.Decision != Allow {
				t.Errorf("%s: %s: %s", line, v.Decision, v.Reason)
			}
			n++
		}
		return n
	}
	if a, b := count(looks), count(works); a < 60 || b < 60 {
		t.Errorf("%d and %d commands are looked at, want 60 each", a, b)
	}
	for _, line := range []string{"git config user.name x", "echo x > .git/hooks/pre-commit", "echo 'export X=1' >> .envrc"} {
		if v := decide(g, line); v.Decision != Ask {
			t.Errorf("%s: %s: %s", line, v.Decision, v.Reason)
		}
	}
	for _, c := range []struct {
		g    *Gate
		line string
		more []string
		want Outcome
	}{
		{g, "make", []string{"outside"}, Ask},
		{g, "ls", []string{"outside"}, Ask},
		{g, "make", []string{"tty"}, Allow},
		{gate(Default, "Bash(make:*)"), "make", nil, Deny},
		{gate(Default, "Bash(make:*)"), "m=make; $m", nil, Ask},
		{gate(Plan), "make", nil, Deny},
		{gate(DontAsk), "make", nil, Deny},
		{gate(Bypass), "make", []string{"outside"}, Allow},
		{gate(Bypass, "Bash(make:*)"), "make", []string{"outside"}, Deny},
	} {
		if v := decide(c.g, c.line, c.more...); v.Decision != c.want {
			t.Errorf("%s %v in %s: %s, want %s: %s", c.line, c.more, c.g.rules.Mode, v.Decision, c.want, v.Reason)
		}
	}
}
