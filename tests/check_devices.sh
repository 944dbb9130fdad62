#!/bin/sh
# A device is never NULL: the CPU is a device, too, whose operations do nothing where nothing is to be done. What really
# differs between devices is a row of operations, a table of an op's kernels, or cddpi_device_is_async(). This check finds
# the old ways to ask whether there is a GPU. Usage: check_devices.sh SOURCE_ROOT
cd "$1" || exit 1
folders='src/runtime/checkpoint src/trainer/data src/runtime/ddp src/runtime/group src/trainer/nn src/trainer/optim src/trainer/train'
pointer='\b(cuda|device|device_step)'
bad=0

# refuse PATTERN REASON [EXCEPT] : no line below the folders matches PATTERN, except in files that match EXCEPT.
refuse() {
    found=$(grep -rnE --include='*.[ch]' "$1" $folders | grep -vE "^(${3:-none}):")
    if [ -n "$found" ]; then
        echo "$found"
        echo "    $2"
        bad=1
    fi
}

# Exceptions: the file for what a model has only on a CUDA device; the group's one question in group.h; options in create.c.
refuse "$pointer *[!=]= *NULL|NULL *[!=]= *[a-z_>.-]*$pointer\b" \
    'asks whether a device is NULL' 'src/trainer/nn/cuda/model_cuda\.c|src/runtime/group/(group\.h|join/create\.c)'
refuse "(->|\.)$pointer *(\?|&&|\|\||\)\s*\{)|!([a-z_]+(->|\.))*$pointer\b *(\)|&&|\|\|)" \
    'asks whether a device is NULL'
# Options in which NULL means the CPU use cddpi_device_or_cpu().
refuse 'cddpi_device_cpu\(\)' 'asks for the processor by name' 'src/runtime/group/device/group_device\.c'
exit $bad
