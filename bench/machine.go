package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// machine is where and with what a run was made.
type machine struct {
	when                time.Time
	cpu, kernel, disk   string
	cores               int
	memory              float64 // GB
	load                string
	jorc, peer, consul  string
	goVersion, platform string
}

func describe(ctx context.Context, p programs, dir string) machine {
	m := machine{
		when: time.Now().UTC(), cpu: field("/proc/cpuinfo", "model name"), cores: runtime.NumCPU(),
		kernel: firstLine("/proc/sys/kernel/osrelease"), load: firstLine("/proc/loadavg"),
		goVersion: runtime.Version(), platform: runtime.GOOS + "/" + runtime.GOARCH, disk: fileSystem(dir),
		jorc: version(ctx, p.jorc, "version"), consul: version(ctx, p.consul, "version"),
	}
	if p.peer != "" {
		m.peer = version(ctx, p.peer, "-v")
	}
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		m.memory = float64(info.Totalram) * float64(info.Unit) / 1e9
	}
	return m
}

func (m machine) markdown() string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "- %s: %s\n", name, value)
		}
	}
	line("date", m.when.Format("2006-01-02 15:04 UTC"))
	line("machine", fmt.Sprintf("%d cores, %s, %.0f GB, Linux %s, files on %s", m.cores, m.cpu, m.memory, m.kernel, m.disk))
	line("load before the run", m.load)
	line("jorc", m.jorc)
	line("peer", m.peer)
	line("Consul", m.consul)
	line("built with", m.goVersion+" "+m.platform)
	b.WriteString("\n")
	return b.String()
}

// version is the first line that a program says about itself.
func version(ctx context.Context, program string, arg string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, arg).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

func firstLine(path string) string {
	data, _ := os.ReadFile(path) // what is not known is left out
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// field is the value of the first line "name : value" in a file of /proc.
func field(path, name string) string {
	data, _ := os.ReadFile(path) // what is not known is left out
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fileSystem names the type of the file system that dir is on: that of the
// longest mount point above it.
func fileSystem(dir string) string {
	data, _ := os.ReadFile("/proc/mounts") // what is not known is left out
	best, kind := "", "?"
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 2 && len(f[1]) >= len(best) && (f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/")) {
			best, kind = f[1], f[2]
		}
	}
	return kind
}
