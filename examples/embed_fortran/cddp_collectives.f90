! cddp_collectives.f90 - collectives of real32, real64, int32 and int64 for Fortran 2018; a part of
! module cddp, which passes it on.
module cddp_collectives
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    implicit none
    private

    public :: cddp_all_reduce, cddp_broadcast, cddp_all_gather, cddp_barrier

    integer(c_int), parameter, public :: cddp_f32 = 0, cddp_f64 = 1, cddp_i32 = 4, cddp_i64 = 5
    integer(c_int), parameter, public :: cddp_op_sum = 0, cddp_op_mean = 1, cddp_op_min = 2
    integer(c_int), parameter, public :: cddp_op_max = 3, cddp_op_prod = 4

    interface cddp_all_reduce
        module procedure all_reduce_real32, all_reduce_real64, all_reduce_int32, all_reduce_int64
        module procedure all_reduce_one_real32, all_reduce_one_real64
    end interface
    interface cddp_broadcast
        module procedure broadcast_real32, broadcast_real64, broadcast_int32, broadcast_int64
    end interface
    interface cddp_all_gather
        module procedure all_gather_real32, all_gather_real64, all_gather_int32, all_gather_int64
    end interface

    interface
        integer(c_int) function c_world_size(group) bind(c, name="cddp_group_world_size")
            import :: c_int, c_ptr
            type(c_ptr), value :: group
        end function
        integer(c_int) function c_all_reduce(group, from, to, count, kind, op, work) &
            bind(c, name="cddp_all_reduce")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, from, to, work
            integer(c_size_t), value :: count
            integer(c_int), value :: kind, op
        end function
        integer(c_int) function c_broadcast(group, values, count, kind, root, work) &
            bind(c, name="cddp_broadcast")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, values, work
            integer(c_size_t), value :: count
            integer(c_int), value :: kind, root
        end function
        integer(c_int) function c_all_gather(group, from, to, count, kind, work) &
            bind(c, name="cddp_all_gather")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, from, to, work
            integer(c_size_t), value :: count
            integer(c_int), value :: kind
        end function
        integer(c_int) function c_barrier(group, work) bind(c, name="cddp_barrier")
            import :: c_int, c_ptr
            type(c_ptr), value :: group, work
        end function
    end interface

contains

    integer(c_int) function cddp_barrier(group) result(status)
        type(c_ptr), intent(in) :: group

        status = c_barrier(group, c_null_ptr)
    end function

    integer(c_int) function all_reduce_real32(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_f32, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_real32(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_f32, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_real32(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(in), target, contiguous :: own(:)
        real(real32), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * c_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_f32, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_real64(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_f64, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_real64(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_f64, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_real64(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(in), target, contiguous :: own(:)
        real(real64), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * c_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_f64, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_int32(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        integer(int32), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_i32, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_int32(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        integer(int32), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_i32, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_int32(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        integer(int32), intent(in), target, contiguous :: own(:)
        integer(int32), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * c_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_i32, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_int64(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        integer(int64), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_i64, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_int64(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        integer(int64), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_i64, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_int64(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        integer(int64), intent(in), target, contiguous :: own(:)
        integer(int64), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * c_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_i64, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_one_real32(group, number, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(inout), target :: number
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(number), c_loc(number), 1_c_size_t, cddp_f32, op, c_null_ptr)
    end function

    integer(c_int) function all_reduce_one_real64(group, number, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(inout), target :: number
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(number), c_loc(number), 1_c_size_t, cddp_f64, op, c_null_ptr)
    end function

end module
