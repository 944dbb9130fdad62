! fortran_recovery.f90 - a loop in Fortran whose state outlives its ranks, on 2 of them: rank 1 is
! killed, and the processes that follow go on from its step, with the values of then.
module one_sum
    use, intrinsic :: iso_c_binding
    use cddp, only: cddp_ok
    implicit none

contains

    integer(c_int) function save_sum(state, to) bind(c) result(status)
        type(c_ptr), value :: state, to
        integer(c_int64_t), pointer :: own, kept

        call c_f_pointer(state, own)
        call c_f_pointer(to, kept)
        kept = own
        status = cddp_ok
    end function

    ! Each rank gets the sum of all.
    integer(c_int) function load_sum(state, from, part, parts) bind(c) result(status)
        type(c_ptr), value :: state, from
        integer(c_int), value :: part, parts
        integer(c_int64_t), pointer :: own, kept

        call c_f_pointer(state, own)
        call c_f_pointer(from, kept)
        if (part == 0) own = 0
        own = own + kept
        status = merge(cddp_ok, -1_c_int, parts == 2)
    end function

end module

program fortran_recovery
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use cddp
    use fortran_expect
    use one_sum
    implicit none
    integer, parameter :: lost_at = 4, steps = 7
    integer(c_int), parameter :: sigkill = 9, sigterm = 15

    ! A type of the program's own.
    type, bind(c) :: position
        integer(c_int32_t) :: epoch
        real(c_double) :: rate
    end type

    real(real32), target :: weight(3, 2), weight_grad(3, 2)
    real(real64), target :: momentum(2, 3), best
    integer(int32), target :: part(5)
    integer(int64), target :: counts(4), total
    type(position), target :: at
    type(c_ptr) :: group, ddp, recovery
    type(cddp_recovery_options) :: options
    integer :: rank

    interface
        integer(c_int) function raise(signal) bind(c)
            import :: c_int
            integer(c_int), value :: signal
        end function
    end interface

    call cddp_must(cddp_group_create(group))
    rank = cddp_group_rank(group)
    call expect(cddp_group_world_size(group) == 2, "two ranks")
    call cddp_must(cddp_stop_on_signals())
    call cddp_must(cddp_ddp_create(group, [cddp_param_of("weight", weight, weight_grad)], ddp))
    call refuse_wrong_arrays()
    options%name = "a loop"
    options%every_steps = 1
    call cddp_must(cddp_recovery_create(group, recovery, options))
    call register()
    call train()
    call cddp_recovery_destroy(recovery)
    call cddp_ddp_destroy(ddp)
    call cddp_group_destroy(group)

contains

    subroutine register()
        call cddp_must(cddp_recovery_add_ddp(recovery, ddp))
        call cddp_must(cddp_recovery_add(recovery, "momentum", momentum))
        call cddp_must(cddp_recovery_add(recovery, "best", best))
        call cddp_must(cddp_recovery_add(recovery, "counts", counts))
        call cddp_must(cddp_recovery_add(recovery, "part", part, 10, 5 * rank))
        call cddp_must(cddp_recovery_add_bytes(recovery, "at", c_loc(at), c_sizeof(at)))
        call cddp_must(cddp_recovery_add_callbacks(recovery, "total", 8_int64, c_funloc(save_sum), &
                                                   c_funloc(load_sum), c_loc(total)))
    end subroutine

    ! The values are those after `step` steps.
    subroutine set(step)
        integer, intent(in) :: step
        integer :: i

        weight = reshape([(step + i / 8.0, i=1, 6)], [3, 2])
        momentum = step * 0.1d0
        best = step + 0.5d0
        counts = 10_int64**10 * step
        part = [(100 * step + 5 * rank + i, i=0, 4)]
        at = position(step, step / 3.0d0)
        total = step * (rank + 1)
    end subroutine

    subroutine expect_values(step)
        integer, intent(in) :: step
        integer :: i

        call expect(all(abs(weight - reshape([(step + i / 8.0, i=1, 6)], [3, 2])) <= 0), "parameters")
        call expect(all(abs(momentum - step * 0.1d0) <= 0), "an array of two dimensions")
        call expect(abs(best - step - 0.5d0) <= 0, "a number")
        call expect(all(counts == 10_int64**10 * step), "integers of 64 bits")
        call expect(all(part == [(100 * step + 5 * rank + i, i=0, 4)]), "this rank's part")
        call expect(at%epoch == step .and. abs(at%rate - step / 3.0d0) <= 0, "memory of another type")
    end subroutine

    subroutine train()
        type(cddp_recovery_info) :: info
        integer(c_int) :: action
        integer :: step, generation
        character(len=20) :: text

        call get_environment_variable("CDDP_GENERATION", text)
        read (text, *) generation
        call set(0)
        step = 0
        do
            call cddp_must(cddp_recovery_step(recovery, step, action))
            if (action == cddp_recovery_stop) exit
            call expect((action == cddp_recovery_replaced) .eqv. (generation == 1 .and. step == lost_at), &
                        "processes that follow go on from the last step")
            if (action == cddp_recovery_replaced) then
                call expect_values(lost_at)
                call expect(total == 3 * lost_at, "the sum of both ranks")
                call set(lost_at)
            end if
            if (generation == 0 .and. step == lost_at) call lose_a_rank()
            step = step + 1
            call set(step)
            if (step == steps .and. rank == 1) call expect(raise(sigterm) == 0, "a signal")
        end do
        call expect(step == steps, "the job stops when it is asked to")
        call cddp_must(cddp_recovery_get_info(recovery, info))
        call expect(info%restored_step == lost_at .and. info%kept_step == steps, "what was kept")
        call expect(info%copies == steps - lost_at .and. info%bytes > 0, "how often")
    end subroutine

    ! All have kept this step when rank 1 is killed.
    subroutine lose_a_rank()
        call cddp_must(cddp_barrier(group))
        if (rank == 1) call expect(raise(sigkill) == 0, "a signal")
    end subroutine

    subroutine refuse_wrong_arrays()
        type(c_ptr) :: first

        call cddp_must(cddp_recovery_create(group, first))
        call refuse(cddp_recovery_add(first, "row", momentum(1, :)), "row (its elements do not lie")
        call cddp_must(cddp_recovery_add(first, "column", momentum(:, 2)))
        call refuse(cddp_recovery_add(first, "column", best), "column: the name is taken")
        call refuse(cddp_recovery_add(first, "part", part, 10, 6), "part: bytes 24 to 44 are not inside of 40")
        call refuse(cddp_recovery_add_callbacks(first, "none", 8_int64, c_null_funptr, c_funloc(load_sum)), &
                    "save is NULL")
        call refuse(cddp_recovery_refuse(first), "no step was begun")
        call cddp_recovery_destroy(first)
        call refuse(cddp_recovery_refuse(first), "destroyed")
    end subroutine

    subroutine refuse(status, text)
        integer(c_int), intent(in) :: status
        character(len=*), intent(in) :: text

        call expect(status /= cddp_ok, text // " is refused")
        call expect(index(cddp_last_error(), text) > 0, cddp_last_error())
    end subroutine

end program
