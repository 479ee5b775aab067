// Package release_test looks into what `make snapshot` has made.
package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// targets are those of .goreleaser.yaml.
var targets = []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64"}

// dist is the folder that DIST names.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("DIST")
	if dir == "" {
		t.Skip("DIST is not set: `make snapshot` makes the packages and runs this test")
	}
	return dir
}

// only is the one file of a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %d files, %v", pattern, len(all), err)
	}
	return all[0]
}

// content is the files of a package by their paths.
type content map[string]entry

type entry struct {
	data []byte
	mode int64
}

// add keeps a file of which the path in an archive may begin with ./ or /.
func (c content) add(t *testing.T, name string, mode int64, r io.Reader) {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	c[strings.TrimPrefix(path.Clean("/"+name), "/")] = entry{data: data, mode: mode}
}

func readTar(t *testing.T, r io.Reader) content {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	c := content{}
	for all := tar.NewReader(z); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			c.add(t, h.Name, h.Mode, all)
		}
	}
}

func readDeb(t *testing.T, data []byte) content {
	t.Helper()
	for all := ar.NewReader(bytes.NewReader(data)); ; {
		h, err := all.Next()
		if err != nil {
			t.Fatalf("no data.tar.gz: %v", err)
		}
		if h.Name == "data.tar.gz" {
			return readTar(t, all)
		}
	}
}

// readRPM reads the files of an RPM: what follows the headers, from the first bytes that
// its compressor writes.
func readRPM(t *testing.T, data []byte) content {
	t.Helper()
	files := payload(t, data)
	c := content{}
	for all := cpio.NewReader(files); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode.IsRegular() {
			c.add(t, h.Name, int64(h.Mode.Perm()), all)
		}
	}
}

func payload(t *testing.T, data []byte) io.Reader {
	t.Helper()
	for magic, open := range map[string]func(io.Reader) (io.Reader, error){
		"\x1f\x8b\x08":     func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"\xfd7zXZ\x00":     func(r io.Reader) (io.Reader, error) { return xz.NewReader(r) },
		"\x28\xb5\x2f\xfd": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
	} {
		if _, after, ok := bytes.Cut(data, []byte(magic)); ok {
			r, err := open(io.MultiReader(strings.NewReader(magic), bytes.NewReader(after)))
			if err == nil {
				return r
			}
		}
	}
	t.Fatal("the RPM has no payload of a known compression")
	return nil
}

// complete checks that a package has the program, its licence, every man page and the
// completion scripts, as they are in the repository.
func (c content) complete(t *testing.T, program, licence, man string, completions map[string]string) {
	t.Helper()
	c.program(t, program)
	c.program(t, program+"-keeper")
	same := func(name, source string) {
		t.Helper()
		want, err := os.ReadFile(filepath.Join("..", "..", source))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c[name].data, want) || c[name].mode&0o777 != 0o644 {
			t.Errorf("%s has %d bytes, mode %o, and is not %s", name, len(c[name].data), c[name].mode, source)
		}
	}
	same(licence, "LICENSE")
	pages, err := filepath.Glob("../../dist-manual/man/*.1")
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d man pages, %v", len(pages), err)
	}
	for _, page := range pages {
		same(path.Join(man, filepath.Base(page)), filepath.Join("dist-manual/man", filepath.Base(page)))
	}
	for name, script := range completions {
		same(name, filepath.Join("dist-manual/completions", script))
	}
}

func (c content) program(t *testing.T, name string) {
	t.Helper()
	if len(c[name].data) < 1<<20 || c[name].mode&0o777 != 0o755 {
		t.Errorf("%s has %d bytes and mode %o", name, len(c[name].data), c[name].mode)
	}
}

func TestArchives(t *testing.T) {
	dir := dist(t)
	for _, target := range targets {
		f, err := os.Open(only(t, filepath.Join(dir, "drover_*_"+target+".tar.gz")))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		readTar(t, f).complete(t, "drover", "LICENSE", "man", map[string]string{
			"completions/drover.bash": "drover.bash", "completions/_drover": "_drover", "completions/drover.fish": "drover.fish",
		})
		hub, err := os.Open(only(t, filepath.Join(dir, "drover-hub_*_"+target+".tar.gz")))
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		readTar(t, hub).program(t, "drover-hub")
	}
}

func TestPackages(t *testing.T) {
	dir := dist(t)
	for format, p := range map[string]struct {
		read         func(*testing.T, []byte) content
		licence, zsh string
	}{
		"deb": {readDeb, "usr/share/doc/drover/copyright", "usr/share/zsh/vendor-completions/_drover"},
		"rpm": {readRPM, "usr/share/licenses/drover/LICENSE", "usr/share/zsh/site-functions/_drover"},
	} {
		for _, arch := range []string{"amd64", "arm64"} {
			t.Run(format+"-"+arch, func(t *testing.T) {
				data, err := os.ReadFile(only(t, filepath.Join(dir, "drover_*_linux_"+arch+"."+format)))
				if err != nil {
					t.Fatal(err)
				}
				p.read(t, data).complete(t, "usr/bin/drover", p.licence, "usr/share/man/man1", map[string]string{
					"usr/share/bash-completion/completions/drover": "drover.bash",
					p.zsh: "_drover",
					"usr/share/fish/vendor_completions.d/drover.fish": "drover.fish",
				})
			})
		}
	}
}

// The program says the version of the release, without one in its name that was not given.
func TestVersion(t *testing.T) {
	dir := dist(t)
	if runtime.GOOS == "windows" {
		t.Skip("no release is made for windows")
	}
	var about struct{ Version string }
	data, err := os.ReadFile(filepath.Join(dir, "metadata.json"))
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err != nil || about.Version == "" {
		t.Fatalf("metadata.json: %v", err)
	}
	bin := only(t, filepath.Join(dir, "drover_"+runtime.GOOS+"_"+runtime.GOARCH+"_*", "drover"))
	out, err := exec.Command(bin, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "drover "+about.Version+" (") {
		t.Errorf("drover version prints %q, %v; want %s", out, err, about.Version)
	}
}

// Every file for download has its checksum, and each program its bill of materials.
func TestChecksums(t *testing.T) {
	dir := dist(t)
	text, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	var files []string
	for _, pattern := range []string{"*.tar.gz", "*.deb", "*.rpm", "*.cdx.json"} {
		all, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, all...)
	}
	// Two archives and three bills of materials for each target, two packages of two formats for Linux.
	if want := 7 * len(targets); len(files) != len(sums) || len(files) != want {
		t.Errorf("%d files and %d checksums, want %d", len(files), len(sums), want)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); sums[filepath.Base(file)] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: checksum mismatch: %q", file, sums[filepath.Base(file)])
		}
	}
	for _, target := range targets {
		var bom struct {
			Components []struct{ Name, Version string }
		}
		data, err := os.ReadFile(filepath.Join(dir, "drover_"+target+".cdx.json"))
		if err == nil {
			err = json.Unmarshal(data, &bom)
		}
		if err != nil || len(bom.Components) < 10 {
			t.Errorf("%s: %d components, %v", target, len(bom.Components), err)
		}
	}
}

// The cask of Homebrew has a checksum for each archive, every man page and the scripts.
func TestCask(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(dist(t), "homebrew", "Casks", "drover.rb"))
	if err != nil {
		t.Fatal(err)
	}
	cask := string(data)
	if n := len(regexp.MustCompile(`sha256 "[0-9a-f]{64}"`).FindAllString(cask, -1)); n != len(targets) {
		t.Errorf("%d checksums, want %d", n, len(targets))
	}
	pages, err := filepath.Glob("../../dist-manual/man/*.1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`binary "drover"`, `binary "drover-keeper"`, `bash_completion "completions/drover.bash"`, `zsh_completion "completions/_drover"`,
		`fish_completion "completions/drover.fish"`}
	for _, page := range pages {
		want = append(want, `manpage "man/`+filepath.Base(page)+`"`)
	}
	for _, line := range want {
		if !slices.ContainsFunc(strings.Split(cask, "\n"), func(l string) bool { return strings.TrimSpace(l) == line }) {
			t.Errorf("the cask has no line %s", line)
		}
	}
}
