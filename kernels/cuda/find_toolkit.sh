#!/bin/sh
# Finds what CUDA has here and prints lines "include DIR", "lib DIR", "nvcc PATH", "cudart PATH"; nothing
# for what there is not. Looked for in $CUDA_HOME, $CUDA_PATH, beside an nvcc on the PATH, in
# /usr/local/cuda, and in the folders of NVIDIA's Python wheels (site-packages/nvidia/*), which hold one
# library each.

wheels() {
    for python in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python3}" python3; do
        [ -n "$python" ] && command -v "$python" >/dev/null 2>&1 || continue
        for site in $("$python" -c 'import site, sysconfig
print(sysconfig.get_paths()["purelib"], *site.getsitepackages(), site.getusersitepackages())' 2>/dev/null); do
            for folder in "$site"/nvidia/*/; do
                [ -d "$folder" ] && echo "${folder%/}"
            done
        done
    done
}

roots() {
    echo "$CUDA_HOME"
    echo "$CUDA_PATH"
    on_path=$(command -v nvcc 2>/dev/null) && dirname "$(dirname "$(readlink -f "$on_path")")"
    echo /usr/local/cuda
    wheels
    echo /usr
}

roots | awk 'NF && !seen[$0]++' | {
    headers= runtime= lt= dnn= nccl= nvtx= nvcc= cudart=
    have=' '
    while IFS= read -r root; do
        for dir in "$root/include" "$root/include/cuda"; do
            found=
            [ -z "$runtime" ] && [ -f "$dir/cuda_runtime_api.h" ] && runtime=1 found=1
            [ -z "$headers" ] && [ -f "$dir/cuda.h" ] && headers=1 found=1
            [ -z "$lt" ] && [ -f "$dir/cublasLt.h" ] && lt=1 found=1
            [ -z "$dnn" ] && [ -f "$dir/cudnn.h" ] && dnn=1 found=1
            [ -z "$nccl" ] && [ -f "$dir/nccl.h" ] && nccl=1 found=1
            [ -z "$nvtx" ] && [ -f "$dir/nvtx3/nvToolsExt.h" ] && nvtx=1 found=1
            [ -n "$found" ] && [ "$dir" != /usr/include ] && echo "include $dir"
        done
        for dir in "$root/lib64" "$root/lib"; do
            if [ -z "$cudart" ] && [ -f "$dir/libcudart_static.a" ]; then
                cudart=$dir/libcudart_static.a
                echo "cudart $cudart"
            fi
            # where the module looks first for what it opens at run time
            for name in cublasLt cudnn nccl; do
                case $have in *" $name "*) continue ;; esac
                for file in "$dir/lib$name.so"*; do
                    if [ -e "$file" ]; then
                        have="$have$name "
                        [ "$root" != /usr ] && echo "lib $dir"
                        break
                    fi
                done
            done
        done
        if [ -z "$nvcc" ] && [ -x "$root/bin/nvcc" ]; then
            nvcc=$root/bin/nvcc
            echo "nvcc $nvcc"
        fi
    done
    if [ -z "$cudart" ]; then
        roots | awk 'NF && !seen[$0]++' | while IFS= read -r root; do
            for file in "$root"/lib64/libcudart.so* "$root"/lib/libcudart.so*; do
                [ -e "$file" ] && echo "cudart $file" && exit 0
            done
        done
    fi
} | awk '!seen[$0]++'
