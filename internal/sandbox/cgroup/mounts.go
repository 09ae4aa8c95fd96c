//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
)

// mount is a mounted hierarchy of control groups.
type mount struct {
	version int
	root    string // the group that is seen at point
	point   string
	options []string
}

func readMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var mounts []mount
	for line := range strings.Lines(string(text)) {
		// id parent device root point options… - type source super-options
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		m := mount{root: left[3], point: left[4], options: strings.Split(right[2], ",")}
		switch right[0] {
		case "cgroup":
			m.version = 1
		case "cgroup2":
			m.version = 2
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// ownGroups are the groups of this process by controller of version 1, and under "" the one of version 2.
func ownGroups() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	return own, nil
}

// locate is the directory of a group, or the top of the hierarchy where the group's name is of a namespace that cannot be
// seen from here, as in some containers.
func (m mount) locate(group string) string {
	relative := strings.TrimPrefix(group, strings.TrimSuffix(m.root, "/"))
	dir := filepath.Join(m.point, relative)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return m.point
}
