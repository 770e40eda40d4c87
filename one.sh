python /tmp/trace15/prof.py /tmp/trace15/one "$@" | grep -E "total|Compiler|VM Thr|starting|reading"
