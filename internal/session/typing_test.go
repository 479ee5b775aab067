package session

import (
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// What a rule denies is not typed either, whatever keys stand between.
func TestUntyped(t *testing.T) {
	rt := open(t, "").asMain()
	rt.rules.Deny = []string{"Bash(rm:*)"}
	for _, text := range []string{"rm -rf /x", "ls\nrm -rf /x", "ls\rrm -rf /x", "ls\r\nrm -rf /x", "ls\x0frm -rf /x", "x\x15rm -rf /x", "x\x7frm -rf /x", "r\x06m -rf /x", "r\\\nm -rf /x"} {
		var no *toolkit.Refusal
		if err := rt.unbanned(text); !errors.As(err, &no) || !strings.Contains(no.Text, "Bash(rm:*)") {
			t.Errorf("%q is typed: %v", text, err)
		}
	}
	for _, text := range []string{"yes", "ls\tx", "ls\rcd ..", "\x03", "", "it's"} {
		if err := rt.unbanned(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Keys are no prompt.
func TestKeysForAgent(t *testing.T) {
	r := open(t, "")
	_, err := r.Send(r.ctx, control.SendRequest{Ref: string(r.cfg.Info.Session), Text: "\x03", Raw: true})
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.Conflict || !strings.Contains(e.Message, "no terminal") {
		t.Errorf("got %v", err)
	}
}
