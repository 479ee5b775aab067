package policy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A question names the narrowest rule that would allow the call, the reason ends
// with it, and the call is allowed once the rule stands in the settings.
func TestSuggest(t *testing.T) {
	ws := workspace(t, "")
	for _, c := range []struct {
		rules Rules
		call  agent.Call
		want  string
	}{
		{Rules{}, call("Read", "file_path", "/etc/fstab"), "Read(/etc/fstab)"},
		{Rules{}, call("Edit", "file_path", "src/a.go"), "Edit(./src/a.go)"},
		{Rules{Mode: AcceptEdits}, call("Write", "file_path", ".envrc"), "Edit(./.envrc)"},
		{Rules{}, call("WebFetch", "url", "https://Docs.example.org/x"), "WebFetch(domain:docs.example.org)"},
		{Rules{}, call("Agent", "subagent_type", "explore"), "Agent(explore)"},
		{Rules{}, call("mcp__git__log", "x", ""), "mcp__git__log"},
		{Rules{}, call("Monitor", "command", "tail -f x.log"), "Bash(tail -f x.log)"},
		{Rules{Deny: []string{"Bash(curl:*)"}}, bash("curl x"), ""},
		{Rules{Ask: []string{"Bash(curl:*)"}}, bash("curl x"), ""},
		{Rules{Mode: Plan}, bash("make"), ""},
		{Rules{}, bash("ma\u200bke"), ""},
	} {
		c.rules.Cwd, c.rules.Home = ws, filepath.Join(filepath.Dir(ws), "home")
		v := gate(t, c.rules).Decide(c.call)
		if v.Suggest != c.want || (c.want != "") != strings.HasSuffix(v.Reason, "(allow with "+c.want+")") {
			t.Errorf("%s: suggests %q, want %q: %s", c.call.Input, v.Suggest, c.want, v.Reason)
		}
		if c.want == "" {
			continue
		}
		c.rules.Allow = append(c.rules.Allow, v.Suggest)
		if v := gate(t, c.rules).Decide(c.call); v.Decision != Allow {
			t.Errorf("%s with %s: %s (%s)", c.call.Input, c.want, v.Decision, v.Reason)
		}
	}
}

// The rule that is suggested for a command covers the like of it and no more: the command of a
// program rather than the program, a script rather than the interpreter, and exactly the line
// where other words would do something else.
func TestSuggestNarrow(t *testing.T) {
	ws := workspace(t, "")
	n := 0
	for row := range strings.Lines(`
go generate ./... -> go generate:*
go test -run X ./... -> go test:*
go run ./cmd/x -> go run ./cmd/x
cd src && gh pr view 1 -> gh pr view:*
gh pr merge 3 -> gh pr merge 3
gh api repos/x/y -> gh api repos/x/y
git commit -m "a b" -> git commit:*
git push origin main -> git push origin main
git reset --hard -> git reset --hard
git clean -fd -> git clean -fd
git checkout -b x -> git checkout:*
git -C src commit -m x -> git commit:*
npm run test -- -u -> npm run test:*
npm test -> npm test:*
npm install left-pad -> npm install:*
npm publish -> npm publish
npm exec tsc -- -v -> npm exec tsc:*
npx vitest run -> npx vitest:*
pnpm build -> pnpm build:*
yarn lint -> yarn lint:*
bun test -> bun test:*
bun x.ts -> bun x.ts:*
deno task dev -> deno task:*
timeout 60 make test -> make test:*
make -> make
make -j4 -> make -j4
ninja all -> ninja all:*
cargo build --release -> cargo build:*
cargo publish -> cargo publish
cargo test -- --nocapture -> cargo test:*
pip install -r r.txt -> pip install:*
pip uninstall x -> pip uninstall x
python3 x.py --all -> python3 x.py:*
python3 -m pytest -x -> python3 -m pytest:*
python3 -c "print(1)" -> python3 -c "print(1)"
node server.js -> node server.js:*
node -e 1 -> node -e 1
bash build.sh fast -> bash build.sh:*
./gradlew build -> ./gradlew build:*
./gradlew -> ./gradlew
./scripts/x.sh --release -> ./scripts/x.sh:*
mvn -q test -> mvn -q test
pytest -x tests -> pytest:*
ruff check --fix . -> ruff:*
gofmt -w . -> gofmt:*
eslint src -> eslint:*
docker ps -> docker ps:*
docker compose up -d -> docker compose up:*
docker run --rm alpine ls -> docker run --rm alpine ls
docker exec c ls -> docker exec c ls
kubectl get pods -> kubectl get:*
kubectl delete pod x -> kubectl delete pod x
terraform plan -> terraform plan:*
terraform apply -> terraform apply
aws s3 ls -> aws s3 ls:*
aws s3 rm s3://x -> aws s3 rm s3://x
curl -s https://x.invalid -> curl -s https://x.invalid
wget https://x.invalid/a -> wget https://x.invalid/a
ssh host ls -> ssh host ls
rm -rf build -> rm -rf build
mv a.txt b.txt -> mv a.txt b.txt
cp -r src out -> cp -r src out
chmod +x a.txt -> chmod +x a.txt
touch x -> touch x
kill 12345 -> kill 12345
sudo make install -> sudo make install
cat ../outside -> cat ../outside
for f in a b; do rm $f; done -> for f in a b; do rm $f; done
systemctl restart x -> systemctl restart:*
FOO=1 make test -> make test:*
some-tool --flag x -> some-tool --flag x
`) {
		line, rule, ok := strings.Cut(strings.TrimSpace(row), " -> ")
		if !ok {
			continue
		}
		n++
		r := Rules{Cwd: ws, Home: filepath.Join(filepath.Dir(ws), "home"), ReadOnlyAuto: true}
		v := gate(t, r).Decide(bash(line))
		if v.Decision != Ask || v.Suggest != "Bash("+rule+")" {
			t.Errorf("%s: %s, suggests %q, want %q (%s)", line, v.Decision, v.Suggest, rule, v.Reason)
			continue
		}
		r.Allow = []string{v.Suggest}
		if v := gate(t, r).Decide(bash(line)); v.Decision != Allow {
			t.Errorf("%s with %s: %s (%s)", line, rule, v.Decision, v.Reason)
		}
	}
	if n < 60 {
		t.Errorf("%d calls are looked at", n)
	}
}
