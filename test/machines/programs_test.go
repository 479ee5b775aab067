//go:build linux

package machines

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/test/harness"
)

// other is the program with a difference that only a test wants, built when the first test asks for it.
type other struct {
	name  string
	edits func() (map[string]edit, error) // by the file that they change; of a file that is not there all of it

	once sync.Once
	bin  string
	err  error
}

// edit puts new text in the place of old. Without old it is the whole file.
type edit struct{ old, new string }

func (o *other) program(t testing.TB) string {
	t.Helper()
	o.once.Do(func() { o.bin, o.err = o.build() })
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.bin
}

func (o *other) build() (string, error) {
	edits, err := o.edits()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(program)
	overlay := map[string]map[string]string{"Replace": {}}
	for name, e := range edits {
		text := e.new
		if e.old != "" {
			was, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			if strings.Count(string(was), e.old) != 1 {
				return "", fmt.Errorf("%s does not have %q once", name, e.old)
			}
			text = strings.Replace(string(was), e.old, e.new, 1)
		}
		file := filepath.Join(dir, o.name+"-"+filepath.Base(name))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay["Replace"][name] = file
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, o.name+".json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, o.name, "drover")
	flags := []string{"-ldflags=-s -w", "-overlay", file}
	return bin, errors.Join(harness.Build(bin, flags...), harness.BuildHub(bin, flags...))
}

// speaking is a program that speaks the protocols that the variable of protocols names, such as 1-2.
var speaking = &other{name: "speaking", edits: func() (map[string]edit, error) {
	dir, err := filepath.Abs("../../internal/fleet/fleetwire")
	if err != nil {
		return nil, err
	}
	return map[string]edit{
		filepath.Join(dir, "wire.go"): {"const (\n\tVersion = 1\n\tOldest  = 1\n)", ""},
		filepath.Join(dir, "spoken.go"): {"", `package fleetwire

import (
	"fmt"
	"os"
)

var Oldest, Version = spoken()

func spoken() (oldest, newest int) {
	if _, err := fmt.Sscanf(os.Getenv("` + protocols + `"), "%d-%d", &oldest, &newest); err != nil {
		panic("` + protocols + `: " + err.Error())
	}
	return oldest, newest
}
`}}, nil
}}

const protocols = "TEST_PROTOCOLS"

// late is a program whose clock is wrong by as many seconds as the variable of the clock says. What time passes it
// measures as any other does.
var late = &other{name: "late", edits: func() (map[string]edit, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	clocks := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	return map[string]edit{
		filepath.Join(clocks, "time.go"): {"\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {",
			"\tsec, nsec, mono := runtimeNow()\n\tsec += wrong\n\tif mono == 0 {"},
		filepath.Join(clocks, "wrong.go"): {"", `package time

import "syscall"

var wrong = wrongBy()

func wrongBy() (by int64) {
	text, _ := syscall.Getenv("` + clock + `")
	for i, c := range text {
		if c >= '0' && c <= '9' {
			by = 10*by + int64(c-'0')
		} else if i > 0 || c != '-' {
			panic("` + clock + ` is not a number")
		}
	}
	if text != "" && text[0] == '-' {
		by = -by
	}
	return by
}
`}}, nil
}}

const clock = "TEST_CLOCK"
