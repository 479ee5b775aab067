package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/httpserve"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Bounds of the paired browsers.
const (
	mostDevices    = 100
	mostDeviceFile = 256 << 10
	devicePatience = 5 * time.Second // for another process that writes the file
)

// Device is a browser that is paired.
type Device struct {
	ID     string    `json:"id"`
	Name   string    `json:"name"` // of the browser and its system; no two have one
	Writes bool      `json:"writes"`
	Paired time.Time `json:"paired"`

	// Digests of its keys, made with the token: with another token they fit no key.
	Read   string `json:"read"`
	Change string `json:"change,omitempty"`
}

// Devices is the file of paired browsers of the servers with one token. Its methods may be called by several processes.
type Devices struct {
	file, token string
}

// DevicesOf returns the browsers that are paired with the token of a file.
func DevicesOf(tokenFile, token string) Devices { return Devices{tokenFile + "-devices.json", token} }

// List returns the devices, oldest first.
func (d Devices) List() ([]Device, error) {
	data, err := home.ReadFile(d.file, mostDeviceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Device
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the paired browsers of %s: %w (remove the file, and pair them again)", d.file, err)
	}
	return all, nil
}

// ErrNoDevice is returned for a device that is not paired.
var ErrNoDevice = errors.New("no such device")

// Revoke ends the pairing of the device with an ID or a name. What it has open ends within seconds.
func (d Devices) Revoke(ctx context.Context, ref string) (gone Device, err error) {
	err = d.change(ctx, func(all []Device) ([]Device, error) {
		at := slices.IndexFunc(all, func(one Device) bool { return one.ID == ref || one.Name == ref })
		if at < 0 {
			return nil, fmt.Errorf("revoke %.100q: %w", ref, ErrNoDevice)
		}
		gone = all[at]
		return slices.Delete(all, at, at+1), nil
	})
	return gone, err
}

// keys are the secrets of one device.
type keys struct{ id, read, change string }

// add pairs a device, which loses its earlier ID. The name gets a number if another device has it.
func (d Devices) add(ctx context.Context, name string, writes bool, before string, now time.Time) (keys, error) {
	k := keys{strings.ToLower(rand.Text()[:8]), rand.Text(), ""}
	one := Device{ID: k.id, Writes: writes, Paired: now.UTC().Truncate(time.Second), Read: d.digest(k.read)}
	if writes {
		k.change = rand.Text()
		one.Change = d.digest(k.change)
	}
	return k, d.change(ctx, func(all []Device) ([]Device, error) {
		all = slices.DeleteFunc(all, func(o Device) bool { return o.ID == before })
		if len(all) >= mostDevices {
			return nil, fmt.Errorf("%d browsers are paired (revoke some: `drover serve devices`)", len(all))
		}
		one.Name = name
		for n := 2; slices.ContainsFunc(all, func(o Device) bool { return o.Name == one.Name }); n++ {
			one.Name = name + " " + strconv.Itoa(n)
		}
		return append(all, one), nil
	})
}

func (d Devices) change(ctx context.Context, f func([]Device) ([]Device, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, devicePatience, errors.New("another process holds it"))
	defer cancel()
	lock := d.file + ".lock"
	unlock, err := home.Await(ctx, func() (func(), error) { return home.LockFile(saferoot.Dir(filepath.Dir(lock)), lock) })
	if err != nil {
		return fmt.Errorf("lock %s: %w", lock, err)
	}
	defer unlock()
	all, err := d.List()
	if err == nil {
		all, err = f(all)
	}
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("write the paired browsers: %w", err)
	}
	return home.WriteAtomic(d.file, append(data, '\n'))
}

// find returns the device to which a cookie belongs, if it is paired.
func (d Devices) find(cookie string) (Device, bool) {
	id, secret, _ := strings.Cut(cookie, ".")
	all, err := d.List()
	at := slices.IndexFunc(all, func(one Device) bool { return one.ID == id })
	if err != nil || at < 0 || !httpserve.Same(all[at].Read, d.digest(secret)) {
		return Device{}, false
	}
	return all[at], true
}

func (d Devices) digest(key string) string {
	h := hmac.New(sha256.New, []byte(d.token))
	h.Write([]byte("drover page: " + key))
	return hex.EncodeToString(h.Sum(nil))
}

// browserName names a browser for people by what it says of itself.
func browserName(agent string) string {
	first := func(names ...string) string {
		for _, n := range names {
			sign, name, other := strings.Cut(n, "=")
			if !other {
				name = sign
			}
			if strings.Contains(agent, sign) {
				return name
			}
		}
		return ""
	}
	browser := first("Edg/=Edge", "OPR/=Opera", "Firefox", "FxiOS=Firefox", "CriOS=Chrome", "Chrome", "Safari")
	system := first("iPhone", "iPad", "Android", "Windows", "Mac OS X=macOS", "CrOS=ChromeOS", "Linux")
	switch {
	case browser == "" && system == "":
		return "a browser"
	case browser == "":
		return "a browser on " + system
	case system == "":
		return browser
	}
	return browser + " on " + system
}
